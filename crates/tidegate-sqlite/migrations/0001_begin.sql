-- What a run was planned to do, each plan once. Plans are never changed and never deleted: every
-- process remembers which number it has seen for which plan.
CREATE TABLE plan (
    id   INTEGER PRIMARY KEY,
    hash INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE INDEX plan_hash ON plan (hash);

-- A workflow in a queue. Never changed and never deleted, like plans.
CREATE TABLE workflow (
    id    INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    name  TEXT NOT NULL,
    UNIQUE (queue, name)
) STRICT;

-- Tasks that are alike for a claim: whoever may take one of them may take any. Never changed and
-- never deleted, like plans.
CREATE TABLE lane (
    id       INTEGER PRIMARY KEY,
    workflow INTEGER NOT NULL,
    task     TEXT NOT NULL,
    weight   INTEGER NOT NULL,
    UNIQUE (workflow, task, weight)
) STRICT;

-- A task of a run. The tasks of a run have consecutive numbers, in the order of the plan. The row of
-- the first one is the run as well: what comes behind ended_at is NULL in all others.
-- Times are microseconds since 1970; codes are those of tidegate-core. Of has_waits, cancelled, failing,
-- awaited and unrecorded (records of the run were pruned) each is 1 if it is so, and NULL otherwise.
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

-- Only what is alive is in these, so that they stay as small as the work in flight. They are few,
-- because every insert opens all of them: claims look behind gates 0 and 3 of the first, where no
-- limit is in between, and what cannot be claimed stands behind another gate. Whoever stands behind a
-- limit is found there by it: behind gate 4 or, to go on after a wait, behind none. The last has those
-- that a worker owns and, without a worker, those that wait as rows (state 5).
CREATE INDEX task_ready ON task (gate, behind, lane, claim_order) WHERE claim_order IS NOT NULL;
CREATE INDEX task_alarm ON task (alarm) WHERE alarm IS NOT NULL;
CREATE INDEX task_worker ON task (worker) WHERE worker IS NOT NULL OR state = 5;
CREATE UNIQUE INDEX task_run_id ON task (run_id) WHERE run_id IS NOT NULL;

-- Idempotency keys, for those runs that have one.
CREATE TABLE run_key (
    workflow INTEGER NOT NULL,
    key      TEXT NOT NULL,
    run      INTEGER NOT NULL,
    PRIMARY KEY (workflow, key)
) STRICT, WITHOUT ROWID;

-- What is kept beside a task: input, output, what it put into the context, what went wrong.
CREATE TABLE payload (
    task INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (task, kind)
) STRICT, WITHOUT ROWID;

-- What happened, in order; never changed.
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

-- The largest numbers that rows had which were deleted, so that none is given twice.
CREATE TABLE used (
    name   TEXT PRIMARY KEY,
    number INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Runs that were pruned, and of which something is left: the tasks from next up to upto, what is
-- kept beside them, records, signals. Their first task is gone, and with it they are, for everybody.
CREATE TABLE doomed (
    run  INTEGER PRIMARY KEY,
    next INTEGER NOT NULL,
    upto INTEGER NOT NULL
) STRICT;

-- One process with an engine. Its number is never given again; its lock file has it as its name.
CREATE TABLE worker (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    slots      INTEGER NOT NULL
) STRICT;
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

-- Pauses, also those that are over: how long something stood still is told by them.
-- Scope 0 is a run, named by its id as text; 1 a queue; 2 the store, with an empty name.
CREATE TABLE pause (
    scope       INTEGER NOT NULL,
    name        TEXT NOT NULL,
    paused_at   INTEGER NOT NULL,
    unpaused_at INTEGER
) STRICT;
CREATE INDEX pause_name ON pause (scope, name);
CREATE UNIQUE INDEX pause_open ON pause (scope, name) WHERE unpaused_at IS NULL;

-- Words left for workers: tasks of theirs that they have to look at.
CREATE TABLE word (
    worker INTEGER NOT NULL,
    task   INTEGER NOT NULL,
    PRIMARY KEY (worker, task)
) STRICT, WITHOUT ROWID;

-- Waits and steps that are stored: what they are for, when due, how they ended and with what. The run
-- is the one whose end or whose signal is waited for.
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

-- Signals that were sent to a run, first in, first out for each name. Numbers are never given again.
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

-- Limits by name: so many units at once, so many begins in so many nanoseconds, or both. The most that
-- ever were allowed at once are what more than one holder can have together; NULL is without bound.
CREATE TABLE task_limit (
    name     TEXT PRIMARY KEY,
    at_once  INTEGER,
    rate     INTEGER,
    rate_per INTEGER,
    most     INTEGER
) STRICT, WITHOUT ROWID;

-- A limit for one key, declared or not, and when time frees it. Never deleted, and only its alarm is
-- changed.
CREATE TABLE limit_key (
    id    INTEGER PRIMARY KEY,
    name  TEXT NOT NULL,
    key   TEXT NOT NULL,
    alarm INTEGER,
    UNIQUE (name, key)
) STRICT;
CREATE INDEX limit_alarm ON limit_key (alarm) WHERE alarm IS NOT NULL;

-- Which task holds how much of which limit.
CREATE TABLE hold (
    task      INTEGER NOT NULL,
    limit_key INTEGER NOT NULL,
    units     INTEGER NOT NULL,
    since     INTEGER NOT NULL,
    PRIMARY KEY (task, limit_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX hold_limit ON hold (limit_key, units);

-- How much was begun under limits with a rate, of late.
CREATE TABLE begun (
    limit_key INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    units     INTEGER NOT NULL,
    PRIMARY KEY (limit_key, at)
) STRICT, WITHOUT ROWID;

-- For people: runs as such.
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
