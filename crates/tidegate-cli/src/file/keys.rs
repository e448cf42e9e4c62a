//! Every key of the file: one list, from which the file is checked and its schema is written.

use super::shape::{Form, Key, Shape, Table};
use super::values;

const NUMBER_MAX: i64 = u32::MAX as i64;

const fn key(name: &'static str, shape: Shape, about: &'static str) -> Key {
    Key { name, shape, about, needed: false }
}

const fn needed(name: &'static str, shape: Shape, about: &'static str) -> Key {
    Key { name, shape, about, needed: true }
}

const LIMIT_OF_TIME: Shape = Shape::Duration { zero: false };
const COMMAND: Shape = Shape::Any(&[
    Shape::Text("a line for the shell"),
    Shape::List("a list of a program and its arguments", &ARGUMENT, 1),
]);
const ARGUMENT: Shape = Shape::AnyText("a text");
const PATH: Shape = Shape::Text("a path");
const TASK_NAMES: Shape =
    Shape::List("a list of names of tasks, such as [\"fetch\"]", &TASK_NAME, 0);
const TASK_NAME: Shape = Shape::Text("the name of a task");

/// The file itself.
pub(crate) const FILE: Table = Table {
    what: "the file",
    example: "a table",
    keys: &[
        key("run", Shape::Table(&RUN), "What holds for the whole run."),
        key(
            "limits",
            Shape::Map("a table of limits, such as [limits] with api = 2", &LIMIT),
            "Bounds that tasks share, by name: so many at once, so many in some time, or both.",
        ),
        needed(
            "tasks",
            Shape::Map(
                "a table of tasks, each with a header of its own: [tasks.NAME]",
                &TASK_SHAPE,
            ),
            "The tasks, by name.",
        ),
    ],
    one_of: &[],
    synonyms: &[
        ("tasks", &["task", "jobs", "job", "steps", "step", "targets", "commands", "stages"]),
        ("limits", &["limit", "resources", "pools", "semaphores"]),
        ("run", &["settings", "config", "options", "defaults", "global", "workflow", "pipeline"]),
    ],
};

/// `[run]`.
pub(crate) const RUN: Table = Table {
    what: "[run]",
    example: "a table: [run]",
    keys: &[
        key(
            "name",
            Shape::Text("a name"),
            "What the run is called; the name of the file's folder unless set.",
        ),
        key(
            "parallel_limit",
            Shape::Any(&[
                Shape::Whole(1, NUMBER_MAX),
                Shape::Form(&PARALLEL_LIMIT),
                Shape::Table(&BETWEEN),
            ]),
            "How many slots there are: a number, \"auto\" (as many as CPUs), a percentage of the CPUs, or bounds. 4 unless set.",
        ),
        key(
            "task_timeout",
            LIMIT_OF_TIME,
            "How long an attempt of a task may compute that has no timeout of its own. None unless set.",
        ),
        key(
            "on_failure",
            Shape::Words(&["fail_fast", "fail_fast_kill", "keep_going"]),
            "What becomes of the rest when a task has failed for good.",
        ),
        key(
            "shell",
            Shape::List(
                "a list of a program and its arguments, such as [\"sh\", \"-ec\"]",
                &ARGUMENT,
                1,
            ),
            "What runs a command that is a text; the text is its last argument. [\"sh\", \"-ec\"] unless set.",
        ),
    ],
    one_of: &[],
    synonyms: &[
        (
            "parallel_limit",
            &[
                "jobs",
                "parallel",
                "concurrency",
                "max_parallel",
                "parallelism",
                "workers",
                "max_workers",
                "threads",
                "slots",
                "max_concurrency",
                "limit",
            ],
        ),
        (
            "task_timeout",
            &["timeout", "timeout_seconds", "timeout_secs", "default_timeout", "time_limit"],
        ),
        (
            "on_failure",
            &[
                "fail_fast",
                "continue_on_error",
                "keep_going",
                "on_error",
                "failfast",
                "stop_on_error",
            ],
        ),
        ("shell", &["sh", "interpreter", "executable"]),
        ("name", &["title", "id"]),
    ],
};

/// `parallel_limit = { … }`.
const BETWEEN: Table = Table {
    what: "parallel_limit",
    example: "{ min = 2, max = 16 }",
    keys: &[
        needed("min", Shape::Whole(1, NUMBER_MAX), "The fewest slots."),
        needed("max", Shape::Whole(1, NUMBER_MAX), "The most slots."),
    ],
    one_of: &[],
    synonyms: &[("min", &["from", "least", "minimum"]), ("max", &["to", "most", "maximum"])],
};

const PARALLEL_LIMIT: Form = Form {
    words: "\"auto\", a percentage of the CPUs such as \"50%\"",
    pattern: "^(auto|[1-9][0-9]{0,3}%)$",
    fits: |text| values::ParallelLimit::from_word(text).is_some(),
};

/// A limit.
const LIMIT: Shape = Shape::Any(&[Shape::Whole(1, NUMBER_MAX), Shape::Table(&LIMIT_TABLE)]);
const LIMIT_TABLE: Table = Table {
    what: "a limit",
    example: "{ at_once = 2, rate = \"60/1m\" }",
    keys: &[
        key("at_once", Shape::Whole(1, NUMBER_MAX), "How many units may be in use at once."),
        key(
            "rate",
            Shape::Form(&RATE),
            "How many units may begin in any stretch of time, as in \"60/1m\".",
        ),
    ],
    one_of: &[],
    synonyms: &[
        ("at_once", &["count", "max", "concurrency", "limit", "units", "parallel", "size"]),
        ("rate", &["per", "rate_limit", "per_second", "per_minute", "throttle"]),
    ],
};
const RATE: Form = Form {
    words: "a number and a time, both above 0, such as \"60/1m\"",
    pattern: "^ *[0-9]+ */ *[0-9a-z]+ *$",
    fits: |text| values::rate(text).is_some(),
};

const TASK_SHAPE: Shape = Shape::Table(&TASK);

/// `[tasks.NAME]`.
pub(crate) const TASK: Table = Table {
    what: "a task",
    example: "a table with a header: [tasks.NAME]",
    keys: &[
        needed(
            "run",
            COMMAND,
            "The command: a text goes through the shell, a list is run directly. {} stands for the input of each.",
        ),
        key("after", TASK_NAMES, "The tasks that come before it."),
        key("each", Shape::Table(&EACH), "Runs it once for each input."),
        key(
            "wait_for",
            Shape::Any(&[
                Shape::Table(&WAIT_FOR),
                Shape::List("a list of such tables", &ONE_WAIT, 1),
            ]),
            "What it waits for before it begins, without a slot; of a list, for all.",
        ),
        key("retries", Shape::Whole(0, NUMBER_MAX), "Attempts after the first."),
        key(
            "backoff",
            Shape::Any(&[Shape::Duration { zero: true }, Shape::Table(&BACKOFF)]),
            "The pause before a further attempt: always the same, or growing.",
        ),
        key(
            "limits",
            Shape::Any(&[
                Shape::List("a list of names of limits, such as [\"api\"]", &LIMIT_NAME, 0),
                Shape::Map(
                    "a table of how much of each, such as { api = 2 }",
                    &Shape::Whole(1, NUMBER_MAX),
                ),
            ]),
            "The limits it takes a unit of, or so many units of each.",
        ),
        key("weight", Shape::Whole(1, NUMBER_MAX), "How many slots it takes; 1 unless set."),
        key("timeout", LIMIT_OF_TIME, "How long one attempt may compute."),
        key(
            "env",
            Shape::Map("a table of variables, such as { MODE = \"full\" }", &VARIABLE),
            "Variables of its environment.",
        ),
        key("env_file", PATH, "A file of lines KEY=VALUE for its environment; env goes before it."),
        key("dir", PATH, "The folder in which it runs; that of the file unless set."),
        key(
            "when",
            Shape::Words(&["all_succeeded", "all_done", "any_failed", "any_succeeded"]),
            "When it runs, seen from the tasks it comes after.",
        ),
        key(
            "priority",
            Shape::Whole(i32::MIN as i64, i32::MAX as i64),
            "A head start in seconds over others that became ready at the same time.",
        ),
        key("queue_timeout", LIMIT_OF_TIME, "How long it may be ready and not begun."),
        key(
            "deadline",
            LIMIT_OF_TIME,
            "How long all of it may take from its first start, waiting and retries included.",
        ),
    ],
    one_of: &[],
    synonyms: &[
        (
            "after",
            &[
                "depends_on",
                "needs",
                "requires",
                "dependencies",
                "deps",
                "depends",
                "dependson",
                "upstream",
                "prerequisites",
            ],
        ),
        ("run", &["cmd", "command", "script", "exec", "commands", "sh", "args", "do", "action"]),
        (
            "dir",
            &["cwd", "workdir", "working_dir", "working_directory", "directory", "chdir", "folder"],
        ),
        ("retries", &["retry", "max_retries", "attempts", "max_attempts", "tries", "retry_count"]),
        ("env", &["environment", "envs", "vars", "variables"]),
        ("env_file", &["envfile", "dotenv", "env_files"]),
        ("when", &["if", "condition", "run_if", "only_if", "trigger_rule"]),
        (
            "timeout",
            &[
                "timeout_seconds",
                "timeout_secs",
                "timeout_ms",
                "time_limit",
                "task_timeout",
                "max_time",
                "max_duration",
                "timeout_minutes",
            ],
        ),
        (
            "each",
            &[
                "matrix",
                "foreach",
                "for_each",
                "items",
                "loop",
                "with_items",
                "glob",
                "lines",
                "inputs",
            ],
        ),
        ("wait_for", &["wait", "wait_until", "until", "wait_on", "sensor"]),
        (
            "backoff",
            &["retry_delay", "retry_backoff", "backoff_seconds", "delay", "retry_interval"],
        ),
        ("weight", &["cost", "slots", "cpus", "cores"]),
        ("priority", &["prio", "nice", "order"]),
        ("limits", &["limit", "resources", "pool", "semaphore", "concurrency_group"]),
    ],
};

const LIMIT_NAME: Shape = Shape::Text("the name of a limit");
const VARIABLE: Shape = Shape::Any(&[Shape::AnyText("a text"), Shape::Whole(i64::MIN, i64::MAX)]);

/// `each = { … }`.
pub(super) const EACH: Table = Table {
    what: "each",
    example: "a table: { glob = \"parts/*.csv\" }, { items = [\"a\", \"b\"] } or { lines = \"list.txt\" }",
    keys: &[
        key(
            "glob",
            Shape::Text("a pattern of paths, such as \"parts/*.csv\""),
            "Once for each path that fits the pattern.",
        ),
        key(
            "items",
            Shape::List("a list of inputs, such as [\"a\", \"b\"]", &VARIABLE, 0),
            "Once for each of these.",
        ),
        key("lines", PATH, "Once for each line of this file."),
    ],
    one_of: &["glob", "items", "lines"],
    synonyms: &[
        ("items", &["inputs", "values", "list", "in"]),
        ("glob", &["files", "pattern", "path", "paths", "globs"]),
        ("lines", &["file", "list_file", "from", "lines_of"]),
    ],
};

const ONE_WAIT: Shape = Shape::Table(&WAIT_FOR);

/// `wait_for = { … }`.
pub(super) const WAIT_FOR: Table = Table {
    what: "wait_for",
    example: "a table such as { file = \"in.csv\", every = \"2s\" }",
    keys: &[
        key("file", PATH, "Until this path exists."),
        key("unchanged_for", LIMIT_OF_TIME, "And until the file has been as it is for so long."),
        key("tcp", Shape::Form(&ADDRESS), "Until this address takes connections."),
        key("http", Shape::Form(&URL), "Until this address answers with success."),
        key("command", COMMAND, "Until this command exits with 0."),
        key("signal", Shape::Text("the name of a signal"), "Until the run is sent this signal."),
        key("delay", LIMIT_OF_TIME, "So long."),
        key("every", LIMIT_OF_TIME, "How often to look; 5s unless set."),
        key("timeout", LIMIT_OF_TIME, "How long to wait at most; then the attempt has failed."),
    ],
    one_of: &["file", "tcp", "http", "command", "signal", "delay"],
    synonyms: &[
        ("file", &["path", "exists", "file_exists"]),
        ("unchanged_for", &["stable_for", "quiet_for", "unchanged", "settled_for"]),
        ("tcp", &["port", "address", "host", "socket"]),
        ("http", &["url", "https", "endpoint"]),
        ("command", &["cmd", "run", "exec", "script"]),
        ("signal", &["event", "approval"]),
        ("delay", &["sleep", "seconds", "duration", "time"]),
        ("every", &["interval", "poll", "poll_interval", "period"]),
        ("timeout", &["max", "timeout_seconds", "deadline", "limit"]),
    ],
};
const ADDRESS: Form = Form {
    words: "a host and a port, such as \"localhost:5432\"",
    pattern: "^.+:[0-9]{1,5}$",
    fits: values::is_address,
};
const URL: Form = Form {
    words: "an address that begins with http:// or https://",
    pattern: "^https?://[^/ ]",
    fits: values::is_url,
};

/// `backoff = { … }`.
const BACKOFF: Table = Table {
    what: "backoff",
    example: "a table such as { initial = \"1s\", factor = 2, max = \"5m\" }",
    keys: &[
        key("initial", Shape::Duration { zero: false }, "The first pause; 1s unless set."),
        key(
            "factor",
            Shape::Number(1.0, 1_000.0),
            "What each pause is multiplied by to give the next; 2 unless set.",
        ),
        key("max", Shape::Duration { zero: false }, "The longest pause; 5m unless set."),
        key(
            "jitter",
            Shape::Number(0.0, 1.0),
            "By which part of it a pause is made longer or shorter by chance; 0.1 unless set.",
        ),
    ],
    one_of: &[],
    synonyms: &[
        ("initial", &["first", "start", "base", "delay", "min"]),
        ("factor", &["multiplier", "exponent", "rate", "base_factor"]),
        ("max", &["longest", "cap", "max_delay", "maximum", "limit"]),
        ("jitter", &["spread", "randomness"]),
    ],
};

/// Where a key belongs that stands somewhere else, and what it is called there.
pub(super) fn home_of(name: &str) -> Option<(&'static str, &'static str)> {
    match name {
        "name" | "id" | "title" => return Some(("the header of a task", "[tasks.NAME]")),
        // It could be many things.
        "limit" => return None,
        _ => {}
    }
    let homes = [(&RUN, "[run]"), (&TASK, "a task"), (&FILE, "the file itself")];
    let parts = [(&EACH, "each"), (&WAIT_FOR, "wait_for"), (&BACKOFF, "backoff")];
    let exact = |table: &Table| table.key(name).map(|key| key.name);
    let mut all = homes.iter().chain(&parts);
    let found = all.find_map(|(table, home)| Some((*home, exact(table)?)));
    found.or_else(|| homes.iter().find_map(|(table, home)| Some((*home, table.synonym(name)?))))
}

/// Every table there is.
#[cfg(test)]
pub(crate) const TABLES: [&Table; 8] =
    [&FILE, &RUN, &BETWEEN, &LIMIT_TABLE, &TASK, &EACH, &WAIT_FOR, &BACKOFF];
