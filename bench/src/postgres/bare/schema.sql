-- The lean schema of the bare loop, as on SQLite: integer keys, the payload apart, one index over what is
-- alive.

CREATE TABLE run (
    id          int8 PRIMARY KEY,
    workflow    int4 NOT NULL,
    state       int2 NOT NULL,      -- 1 running, 2 succeeded
    created_at  int8 NOT NULL,
    finished_at int8
);

CREATE TABLE task (
    id          int8 PRIMARY KEY,
    run         int8 NOT NULL,
    step        int4 NOT NULL,
    state       int2 NOT NULL,      -- 0 ready, 1 running, 2 succeeded
    due         int8 NOT NULL,      -- ready: when it may start; running: when the lease ends
    attempt     int4 NOT NULL,
    worker      int4,
    fence       int8 NOT NULL,
    finished_at int8
);
CREATE INDEX task_live ON task (state, due) WHERE state < 2;

CREATE TABLE payload (
    task  int8 PRIMARY KEY,
    input text NOT NULL
);

CREATE TABLE event (
    id   int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run  int8 NOT NULL,
    task int8 NOT NULL,
    kind int2 NOT NULL,             -- 2 succeeded
    at   int8 NOT NULL
);
