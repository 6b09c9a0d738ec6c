"""Functions that compute the fields of an answer; `questions` maps queries to them."""
