"""The checks of `nni-manager doctor`, a module per subject. They leave no process, file or folder behind."""
