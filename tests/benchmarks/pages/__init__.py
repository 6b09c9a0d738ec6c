"""The page of one experiment, measured in Chromium and by a crowd of readers."""
