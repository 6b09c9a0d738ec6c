"""The answers: functions that compute the fields of an answer; `questions` says which one answers what."""
