"""One trial: its page and drawer, its log and files, running it again as it was or changed; and failures by kind."""
