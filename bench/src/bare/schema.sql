-- The lean schema of the bare loop: integer keys, the payload apart, one index over what is alive.

CREATE TABLE run (
    id          INTEGER PRIMARY KEY,
    workflow    INTEGER NOT NULL,
    state       INTEGER NOT NULL,   -- 1 running, 2 succeeded
    created_at  INTEGER NOT NULL,
    finished_at INTEGER
) STRICT;

CREATE TABLE task (
    id          INTEGER PRIMARY KEY,
    run         INTEGER NOT NULL,
    step        INTEGER NOT NULL,
    state       INTEGER NOT NULL,   -- 0 ready, 1 running, 2 succeeded
    due         INTEGER NOT NULL,   -- ready: when it may start; running: when the lease ends
    attempt     INTEGER NOT NULL,
    worker      INTEGER,
    fence       INTEGER NOT NULL,
    finished_at INTEGER
) STRICT;

-- Finds the ready ones in order and the running ones whose lease has ended. A finished task leaves
-- it, so that it stays as small as the work in flight.
CREATE INDEX task_live ON task (state, due) WHERE state < 2;

CREATE TABLE payload (
    task  INTEGER PRIMARY KEY,
    input TEXT NOT NULL
) STRICT;

CREATE TABLE event (
    id   INTEGER PRIMARY KEY,
    run  INTEGER NOT NULL,
    task INTEGER NOT NULL,
    kind INTEGER NOT NULL,          -- 2 succeeded
    at   INTEGER NOT NULL
) STRICT;
