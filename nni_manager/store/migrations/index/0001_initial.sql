-- All experiments of a data directory. Everything here can be read again from the folders.

CREATE TABLE experiments (
    id         TEXT PRIMARY KEY,
    folder     TEXT NOT NULL,        -- absolute
    name       TEXT,
    platform   TEXT NOT NULL,        -- names joined by comma when there are several
    status     TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    ended_ms   INTEGER,
    open       INTEGER NOT NULL      -- 1: a daemon that starts must work on it
);
