-- Made anew, not altered: some programs of version 1 made the table with the new column. Numbers that
-- were given go on from where they were, and programs of version 1 can still add themselves.
CREATE TABLE worker_2 (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    slots      INTEGER NOT NULL,
    -- Whether it can do whatever there is, not only what worker_knows has of it.
    knows_all  INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO worker_2 (id, name, started_at, slots) SELECT id, name, started_at, slots FROM worker;
DELETE FROM sqlite_sequence WHERE name = 'worker_2';
UPDATE sqlite_sequence SET name = 'worker_2' WHERE name = 'worker';
DROP TABLE worker;
ALTER TABLE worker_2 RENAME TO worker;
