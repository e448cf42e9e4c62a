//! Ending the commands of a worker that died, so that they can be run again.
//!
//! Which processes are a dead worker's command? A process carries the token in its environment and
//! so says it itself. A group is the noted one
//!
//! - if the process that has its number began when the noted leader did (a number and a start name
//!   one process for good);
//! - or, if no process has that number any more, if a member carries the token.
//!
//! The age of members proves nothing in the second case: once all of a group have ended, its number
//! can be given to a process that leads a new group, starts others in it and ends; those are younger
//! than the noted leader, but so are the command's own children. Hence a group without its leader,
//! all of whose members have cleared their environment, is left alone: better a left-over than a
//! stranger killed. Where a process has the number but began at another time, the number was given
//! away, which happens only after the last of the group: nobody of it is left.
//!
//! Within one call, what was proven once holds as long as the group has members; between two looks
//! the numbers cannot have gone round.
//!
//! A worker counts as dead when the lock it held is free. A child between fork and exec still holds
//! that lock, so that whoever runs here meets no child whose environment is not yet its own.

use super::GRACE;
use super::group::{Group, Pauses};
use super::table::{self, Process};
use super::unfinished::{Unfinished, unfinished};
use rustix::process::{PidfdFlags, Signal};
use std::collections::{HashMap, HashSet};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// From KILL until a process counts as one that cannot be killed.
const PATIENCE: Duration = Duration::from_secs(5);

/// Ends all commands that the notes of a dead worker call unfinished: TERM, the grace, KILL. Returns
/// how many there were.
///
/// Once this returns `Ok`, none of them is alive. The notes are left as they are; to be called again
/// is harmless.
///
/// # Cancel safety
/// Dropped in the middle, some may be alive.
///
/// # Errors
/// The notes cannot be read; `TimedOut`: a process does not end although it was killed;
/// `ResourceBusy`: this process itself runs as part of such a command, which was left alone. In each
/// case some of them may be alive, and the caller tries again later.
pub(crate) async fn end_all(notes: &Path) -> io::Result<u32> {
    end_all_within(notes, GRACE, PATIENCE).await
}

pub(super) async fn end_all_within(
    notes: &Path,
    grace: Duration,
    patience: Duration,
) -> io::Result<u32> {
    let notes = notes.to_owned();
    let (mut remains, mut living) =
        blocking(move || Remains::of(unfinished(&notes)?).look(Step::Terminate)).await?;
    let begin = Instant::now();
    let mut pauses = Pauses::new();
    while living {
        let step = match begin.elapsed() {
            past if past >= grace + patience => return Err(remains.unkillable()),
            past if past >= grace => Step::Kill,
            _ => Step::Watch,
        };
        tokio::time::sleep(pauses.next()).await;
        (remains, living) = blocking(move || remains.look(step)).await?;
    }
    remains.result()
}

/// A look through all processes takes milliseconds: not on a thread of the runtime.
async fn blocking<T: Send + 'static>(
    look: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(look).await.map_err(io::Error::other)?
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Terminate,
    Watch,
    Kill,
}

/// What is left of a dead worker's commands.
struct Remains {
    commands: Vec<Remaining>,
}

struct Remaining {
    token: String,
    /// The group and its leader's start.
    group: Option<(Group, u64)>,
    /// The group is known to be the noted one.
    proven: bool,
    /// Somebody of it was alive.
    found: bool,
    /// We are part of it.
    contains_us: bool,
}

impl Remains {
    fn of(unfinished: Vec<Unfinished>) -> Self {
        let commands = unfinished.into_iter().filter_map(|Unfinished { token, group }| {
            let group = match group {
                // With the machine, all its processes have ended.
                Some(noted) if noted.boot != table::boot() => return None,
                Some(noted) => Some((noted.group, noted.start)),
                None => None,
            };
            let (proven, found, contains_us) = (false, false, false);
            Some(Remaining { token, group, proven, found, contains_us })
        });
        Remains { commands: commands.collect() }
    }

    /// Finds who is alive and signals them; whether there was anybody.
    fn look(mut self, step: Step) -> io::Result<(Self, bool)> {
        if self.commands.is_empty() {
            return Ok((self, false));
        }
        let scene = Scene::look()?;
        let mut anybody = false;
        for command in &mut self.commands {
            command.prove(&scene);
            let living = command.living(&scene);
            if living.iter().any(|process| scene.is_protected(process)) {
                command.contains_us = true;
                continue;
            }
            if living.is_empty() {
                continue;
            }
            anybody = true;
            command.found = true;
            command.signal(&living, step);
        }
        Ok((self, anybody))
    }

    fn result(self) -> io::Result<u32> {
        if let Some(command) = self.commands.iter().find(|command| command.contains_us) {
            let token = &command.token;
            let busy = format!("this process is part of the command {token}, which is to end");
            return Err(io::Error::new(ErrorKind::ResourceBusy, busy));
        }
        let found = self.commands.iter().filter(|command| command.found);
        Ok(u32::try_from(found.count()).unwrap_or(u32::MAX))
    }

    fn unkillable(&self) -> io::Error {
        let found = self.commands.iter().filter(|command| command.found);
        let tokens: Vec<&str> = found.map(|command| command.token.as_str()).collect();
        let late = format!("of these commands some do not end: {}", tokens.join(", "));
        io::Error::new(ErrorKind::TimedOut, late)
    }
}

impl Remaining {
    fn prove(&mut self, scene: &Scene) {
        if self.group.is_none() {
            // Started, but not noted: the leader of a group that carries the token is it. Had
            // several left the command's group for ones of their own, the oldest is the first.
            let carriers = scene.carriers(&self.token);
            let leaders = carriers.filter(|process| process.number == process.group);
            self.group = leaders
                .min_by_key(|process| process.start)
                .and_then(|leader| Some((Group::new(leader.number)?, leader.start)));
        }
        let Some((group, start)) = self.group else { return };
        self.proven = match scene.all.get(&group.number()) {
            Some(leader) => leader.start == start,
            None => {
                let mut carriers = scene.carriers(&self.token);
                self.proven || carriers.any(|process| process.group == group.number())
            }
        };
    }

    fn proven_group(&self) -> Option<Group> {
        self.group.filter(|_| self.proven).map(|(group, _)| group)
    }

    fn living<'s>(&self, scene: &'s Scene) -> Vec<&'s Process> {
        let group = self.proven_group().map(Group::number);
        let members = scene.all.values().filter(move |process| Some(process.group) == group);
        let others = scene.carriers(&self.token);
        let others = others.filter(|process| Some(process.group) != group);
        members.chain(others).filter(|process| process.living).collect()
    }

    fn signal(&self, living: &[&Process], step: Step) {
        let group = self.proven_group();
        match (group, step) {
            (Some(group), Step::Terminate) => group.terminate(),
            (Some(group), Step::Kill) => group.kill(),
            _ => {}
        }
        let number = group.map(Group::number);
        let others = living.iter().filter(|process| Some(process.group) != number);
        others.for_each(|process| signal_one(process, step));
        if step == Step::Terminate {
            tracing::warn!(token = self.token, group = number, "ending a dead worker's command");
        }
    }
}

/// By a handle, so that the signal cannot reach one who was given the number since.
fn signal_one(process: &Process, step: Step) {
    let signals: &[Signal] = match step {
        Step::Terminate => &[Signal::TERM, Signal::CONT],
        Step::Watch => &[],
        Step::Kill => &[Signal::KILL],
    };
    let Some(pid) = Group::new(process.number).map(Group::leader) else { return };
    let Ok(handle) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { return };
    if Process::read(process.number).is_none_or(|now| now.start != process.start) {
        return;
    }
    for signal in signals {
        // It has ended, or is another user's: the next look tells.
        let _ = rustix::process::pidfd_send_signal(&handle, *signal);
    }
}

/// All processes at one moment, and which tokens they carry.
struct Scene {
    all: HashMap<i32, Process>,
    carriers: HashMap<String, Vec<i32>>,
    /// We and those we come from.
    lineage: HashSet<i32>,
    our_group: i32,
}

impl Scene {
    fn look() -> io::Result<Scene> {
        let all = table::all()?;
        let mut carriers: HashMap<String, Vec<i32>> = HashMap::new();
        for process in all.values().filter(|process| process.living) {
            for token in process.marks() {
                carriers.entry(token).or_default().push(process.number);
            }
        }
        let us = rustix::process::getpid().as_raw_nonzero().get();
        let our_group = rustix::process::getpgrp().as_raw_nonzero().get();
        let mut lineage = HashSet::new();
        let mut next = Some(us);
        while let Some(number) = next.filter(|number| lineage.insert(*number)) {
            next = all.get(&number).map(|process| process.parent);
        }
        Ok(Scene { all, carriers, lineage, our_group })
    }

    fn carriers(&self, token: &str) -> impl Iterator<Item = &Process> {
        let numbers = self.carriers.get(token).into_iter().flatten();
        numbers.filter_map(|number| self.all.get(number))
    }

    fn is_protected(&self, process: &Process) -> bool {
        process.group == self.our_group || self.lineage.contains(&process.number)
    }
}
