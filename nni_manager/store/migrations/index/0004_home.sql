-- The data directory that this index lay in last: folders of experiments below it move with it.

CREATE TABLE home (
    directory TEXT NOT NULL      -- absolute, without links
);
