-- What all migrations together make, as the database itself tells it. A test compares them.

CREATE TABLE plan (
    id   INTEGER PRIMARY KEY,
    hash INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;

CREATE INDEX plan_hash ON plan (hash);

CREATE TABLE workflow (
    id    INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    name  TEXT NOT NULL,
    UNIQUE (queue, name)
) STRICT;

CREATE TABLE lane (
    id       INTEGER PRIMARY KEY,
    workflow INTEGER NOT NULL,
    task     TEXT NOT NULL,
    weight   INTEGER NOT NULL,
    UNIQUE (workflow, task, weight)
) STRICT;

CREATE TABLE task (
    key          INTEGER PRIMARY KEY,
    idx          INTEGER NOT NULL,
    plan         INTEGER NOT NULL,
    lane         INTEGER NOT NULL,
    state        INTEGER NOT NULL,
    reason       INTEGER,
    fence        INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    entries      INTEGER NOT NULL,
    recoveries   INTEGER NOT NULL,
    active       INTEGER NOT NULL,
    started      INTEGER,
    stopping     INTEGER,
    worker       INTEGER,
    since        INTEGER,
    due          INTEGER,
    begun_at     INTEGER,
    waits_since  INTEGER,
    waits_for    TEXT,
    turn         INTEGER NOT NULL,
    gate         INTEGER,
    behind       INTEGER,
    claim_order  INTEGER,
    alarm        INTEGER,
    has_waits    INTEGER,
    ended_at     INTEGER,
    run_id       BLOB,
    workflow     INTEGER,
    priority     INTEGER,
    run_key      TEXT,
    not_before   INTEGER,
    submitted_at INTEGER,
    paused_at    INTEGER,
    cancelled    INTEGER,
    failing      INTEGER,
    open         INTEGER,
    awaited      INTEGER,
    outcome      INTEGER,
    run_ended_at INTEGER,
    parent_task  INTEGER,
    retry_of     BLOB,
    unrecorded   INTEGER
) STRICT;

CREATE INDEX task_ready ON task (gate, behind, lane, claim_order) WHERE claim_order IS NOT NULL;

CREATE INDEX task_alarm ON task (alarm) WHERE alarm IS NOT NULL;

CREATE INDEX task_worker ON task (worker) WHERE worker IS NOT NULL OR state = 5;

CREATE UNIQUE INDEX task_run_id ON task (run_id) WHERE run_id IS NOT NULL;

CREATE TABLE run_key (
    workflow INTEGER NOT NULL,
    key      TEXT NOT NULL,
    run      INTEGER NOT NULL,
    PRIMARY KEY (workflow, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE payload (
    task INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (task, kind)
) STRICT, WITHOUT ROWID;

CREATE TABLE record (
    seq      INTEGER PRIMARY KEY,
    at       INTEGER NOT NULL,
    run      INTEGER NOT NULL,
    idx      INTEGER NOT NULL,
    what     INTEGER NOT NULL,
    reason   INTEGER,
    attempt  INTEGER NOT NULL,
    entry    INTEGER NOT NULL,
    worker   INTEGER,
    begun_at INTEGER,
    active   INTEGER NOT NULL,
    error    TEXT
) STRICT;

CREATE INDEX record_run ON record (run);

CREATE TABLE used (
    name   TEXT PRIMARY KEY,
    number INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE doomed (
    run  INTEGER PRIMARY KEY,
    next INTEGER NOT NULL,
    upto INTEGER NOT NULL
) STRICT;

CREATE TABLE sqlite_sequence(name,seq);

CREATE TABLE worker_queue (
    worker INTEGER NOT NULL,
    queue  TEXT NOT NULL,
    PRIMARY KEY (worker, queue)
) STRICT, WITHOUT ROWID;

CREATE TABLE worker_knows (
    worker   INTEGER NOT NULL,
    workflow TEXT NOT NULL,
    task     TEXT NOT NULL,
    PRIMARY KEY (worker, workflow, task)
) STRICT, WITHOUT ROWID;

CREATE TABLE pause (
    scope       INTEGER NOT NULL,
    name        TEXT NOT NULL,
    paused_at   INTEGER NOT NULL,
    unpaused_at INTEGER
) STRICT;

CREATE INDEX pause_name ON pause (scope, name);

CREATE UNIQUE INDEX pause_open ON pause (scope, name) WHERE unpaused_at IS NULL;

CREATE TABLE word (
    worker INTEGER NOT NULL,
    task   INTEGER NOT NULL,
    PRIMARY KEY (worker, task)
) STRICT, WITHOUT ROWID;

CREATE TABLE wait (
    task       INTEGER NOT NULL,
    kind       INTEGER NOT NULL,
    name       TEXT NOT NULL,
    occurrence INTEGER NOT NULL,
    label      TEXT NOT NULL,
    since      INTEGER NOT NULL,
    due        INTEGER,
    run        INTEGER,
    how        INTEGER,
    body       BLOB,
    signal     INTEGER,
    PRIMARY KEY (task, kind, name, occurrence)
) STRICT, WITHOUT ROWID;

CREATE INDEX wait_open ON wait (run, kind, name, since, task)
    WHERE how IS NULL AND run IS NOT NULL;

CREATE TABLE signal (
    seq      INTEGER PRIMARY KEY AUTOINCREMENT,
    id       BLOB NOT NULL,
    run      INTEGER NOT NULL,
    name     TEXT NOT NULL,
    body     BLOB,
    sent_at  INTEGER NOT NULL,
    taken_by INTEGER
) STRICT;

CREATE INDEX signal_waiting ON signal (run, name, seq) WHERE taken_by IS NULL;

CREATE INDEX signal_sent ON signal (run, id);

CREATE TABLE task_limit (
    name     TEXT PRIMARY KEY,
    at_once  INTEGER,
    rate     INTEGER,
    rate_per INTEGER,
    most     INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE limit_key (
    id    INTEGER PRIMARY KEY,
    name  TEXT NOT NULL,
    key   TEXT NOT NULL,
    alarm INTEGER,
    UNIQUE (name, key)
) STRICT;

CREATE INDEX limit_alarm ON limit_key (alarm) WHERE alarm IS NOT NULL;

CREATE TABLE hold (
    task      INTEGER NOT NULL,
    limit_key INTEGER NOT NULL,
    units     INTEGER NOT NULL,
    since     INTEGER NOT NULL,
    PRIMARY KEY (task, limit_key)
) STRICT, WITHOUT ROWID;

CREATE INDEX hold_limit ON hold (limit_key, units);

CREATE TABLE begun (
    limit_key INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    units     INTEGER NOT NULL,
    PRIMARY KEY (limit_key, at)
) STRICT, WITHOUT ROWID;

CREATE VIEW run AS
SELECT
    task.key,
    lower(hex(task.run_id)) AS id,
    workflow.queue,
    workflow.name AS workflow,
    task.priority,
    task.run_key AS idempotency_key,
    datetime(task.submitted_at / 1000000, 'unixepoch') AS submitted_at,
    datetime(task.paused_at / 1000000, 'unixepoch') AS paused_at,
    CASE task.outcome WHEN 0 THEN 'succeeded' WHEN 1 THEN 'failed' WHEN 2 THEN 'cancelled' END
        AS outcome,
    datetime(task.run_ended_at / 1000000, 'unixepoch') AS ended_at
FROM task JOIN workflow ON workflow.id = task.workflow
WHERE task.run_id IS NOT NULL;

CREATE TABLE "worker" (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    slots      INTEGER NOT NULL,
    -- Whether it can do whatever there is, not only what worker_knows has of it.
    knows_all  INTEGER NOT NULL DEFAULT 0
) STRICT;
