-- What the config refers to and does not hold. Read when an adapter is built, and never shown.

CREATE TABLE secrets (
    reference TEXT PRIMARY KEY,     -- as the config has it: ${VARIABLE}, file:/path, stored:service.field
    value TEXT NOT NULL
) STRICT;
