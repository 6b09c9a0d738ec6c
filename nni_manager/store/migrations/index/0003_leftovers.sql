-- Folders that are to go: of experiments that are being made, until they are listed, and of those that were deleted.

CREATE TABLE leftovers (
    id     TEXT PRIMARY KEY,
    folder TEXT NOT NULL         -- absolute
);
