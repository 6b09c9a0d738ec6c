"""The answers, a module per question; each has `answer`, which computes the fields of its answer."""
