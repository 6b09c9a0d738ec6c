"""NNI's folders, tables and answers."""
