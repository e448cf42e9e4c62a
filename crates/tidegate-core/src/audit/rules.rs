//! The rules of an audit: what must hold, what it means where it does not, what a repair does.
//!
//! This is the one list of them. Findings are looked up here by name, and the page of the guide is
//! checked against it.

/// Something that must hold of every store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// The name that findings carry.
    pub name: &'static str,
    /// What must hold.
    pub holds: &'static str,
    /// What it means for the user where it does not, and what to do.
    pub meaning: &'static str,
    /// What a repair does, where one is safe; `None`: it is for a person.
    pub repair: Option<&'static str>,
}

impl Rule {
    /// The rule of this name.
    pub fn named(name: &str) -> Option<&'static Rule> {
        RULES.iter().find(|rule| rule.name == name)
    }
}

const fn person(name: &'static str, holds: &'static str, meaning: &'static str) -> Rule {
    Rule { name, holds, meaning, repair: None }
}

const fn repaired(
    name: &'static str,
    holds: &'static str,
    meaning: &'static str,
    repair: &'static str,
) -> Rule {
    Rule { name, holds, meaning, repair: Some(repair) }
}

/// All of them.
pub const RULES: &[Rule] = &[
    // ---------------------------------------------------------------------------------- a run --
    person(
        "whole",
        "a run has all its tasks, each under its number, and its head in the first only",
        "the run cannot go on; restore the store from a backup, or submit the run anew",
    ),
    person(
        "columns",
        "the columns of a row make a task or a wait, and what they name exists",
        "whatever touches this row fails; restore the store from a backup",
    ),
    person(
        "life",
        "fence, entries, attempts, deaths and the wish to stop fit the state of a task",
        "the task may run more or less often than it should; cancel its run and submit it anew",
    ),
    person(
        "owner",
        "whoever runs a task is a worker that is known",
        "the task is taken over by the next worker that looks; start one if none is running",
    ),
    person(
        "ended_at",
        "a task has the time of its end if it has ended, and only then",
        "times that are shown of this task are wrong, nothing waits for them; leave it as it is",
    ),
    person(
        "records",
        "a task that has ended has one record that says so, and none after it",
        "the history of this task is not complete or not true; do not rely on it",
    ),
    repaired(
        "place",
        "gate, order, alarm and the limit it stands behind follow from the life of a task",
        "the task may never be claimed or woken, or too early; repair it",
        "puts the task where it belongs",
    ),
    repaired(
        "lane",
        "a task stands in the lane of its queue, workflow, name and weight",
        "the task may never be claimed, or by a worker that cannot run it; repair it",
        "puts the task into its lane",
    ),
    repaired(
        "settled",
        "nothing follows for a task that has not happened to it",
        "the run may hang; repair it",
        "unblocks, skips or cancels what has to be",
    ),
    repaired(
        "outcome",
        "a run has ended when all its tasks have, in the way its graph says",
        "whoever waits for the run is told nothing, or something wrong; repair it",
        "ends the run, or lets it go on, as its tasks say",
    ),
    repaired(
        "open",
        "a run knows how many of its tasks have not ended",
        "the run would end too early or never; repair it",
        "counts them anew",
    ),
    repaired(
        "failing",
        "a run is marked as failing when a task or an item of one has failed for good, and only then",
        "the run would not be stopped after a failure, or without one; repair it",
        "marks it as its tasks say",
    ),
    repaired(
        "cancelled",
        "nothing of a run goes on that a user has cancelled",
        "work is done that nobody wants; repair it",
        "cancels what is left of it",
    ),
    repaired(
        "pause",
        "a run that is paused has one pause that is not over, and no other run has",
        "its queue time-outs do not stand still, or for ever; repair it",
        "begins or ends the pause as the run says, which is what gates go by",
    ),
    repaired(
        "key",
        "a run is found under its idempotency key, and nothing else is",
        "a repeated submit would begin a second run, or be answered with a wrong one; repair it",
        "files the run under its key, unless another has it, and forgets keys of no run",
    ),
    // ------------------------------------------------------------------- waits and runs in runs --
    repaired(
        "parked",
        "a parked task has an open wait or a time to be woken",
        "the task would wait for ever; repair it",
        "wakes the task, which finds what its waits came to",
    ),
    repaired(
        "waits",
        "a task of which waits are kept is marked so, one that has ended has none open, and each \
         wait names what it is for",
        "a later entry would repeat what was done, or wait for ever; repair it, or, where it has no \
         repair, cancel the run and submit it anew",
        "marks the task; closes open waits of one that has ended",
    ),
    repaired(
        "awaited",
        "a run whose end is waited for has not ended, and is marked so",
        "whoever waits for it waits for ever, or its tasks are not let in before others; repair it",
        "tells how the run has ended, or marks it",
    ),
    repaired(
        "family",
        "a run whose parent ended other than by success has ended too",
        "work is done for nobody; repair it",
        "cancels the run",
    ),
    person(
        "cycle",
        "no run waits for itself, through whatever others",
        "none of them ever ends; cancel one of them",
    ),
    repaired(
        "signal",
        "no signal lies about while somebody waits for it, and one that was taken is named by the \
         wait that it ended, as long as its task has not ended",
        "a task does not hear what it was told; repair it, or, where it has no repair, send the \
         signal again",
        "gives the signal to whoever waits longest",
    ),
    // --------------------------------------------------------------------------------- limits --
    repaired(
        "behind",
        "only who is ready or runs stands behind a limit, and only behind one that it uses",
        "the task may never be claimed; repair it",
        "takes it away from there",
    ),
    repaired(
        "holds",
        "only who runs or is parked holds limits, and only those that it uses",
        "a limit is fuller than it should be and others wait for nothing, or emptier; repair it, or, \
         where it has no repair, wait until the task has ended",
        "gives back what the task may not hold",
    ),
    repaired(
        "uses",
        "what a task holds or stands behind is what it uses, under its own keys",
        "a limit is fuller or emptier than it should be; repair it",
        "makes it hold what it uses, and stand nowhere else",
    ),
    repaired(
        "count",
        "a limit counts the units that tasks hold of it, and those that were begun under its rate",
        "the limit lets through too many or too few; repair it",
        "counts them anew",
    ),
    person(
        "most",
        "several tasks together never hold more of a limit than there ever was",
        "what the limit guards is used by too many; nobody is let in until enough have ended, so \
         wait, or cancel one",
    ),
    repaired(
        "limit",
        "nobody who is first of its lane stands behind a limit with room, and where only time is in \
         the way it is looked at when that has come",
        "tasks wait for a limit that is free; repair it",
        "lets through whom there is room for",
    ),
    // -------------------------------------------------------------------------------- workers --
    person(
        "silent",
        "a worker that holds its lock gives a sign every second",
        "its process is stopped or hangs and keeps its tasks; continue it or end it, then others \
         take over",
    ),
    repaired(
        "word",
        "words are left for workers that are known or own something",
        "nobody will ever hear them, and nothing is missed by that; repair it",
        "removes them",
    ),
    repaired(
        "worker",
        "queues and tasks are listed for workers that are known",
        "they are in nobody's way; repair it",
        "removes them",
    ),
    // ------------------------------------------------------------------------------ the store --
    repaired(
        "stray",
        "nothing is kept beside a task, or recorded of a run, that does not exist",
        "it takes up room, and what it belonged to is gone; repair it",
        "removes it",
    ),
    person(
        "index",
        "what is found by an index is what the rows say",
        "tasks may never be found; for a file, run `REINDEX` on it with the sqlite3 program while \
         no worker is alive",
    ),
    person(
        "file",
        "the database itself finds its tables and indexes as they should be",
        "the file is damaged; restore it from a backup",
    ),
];
