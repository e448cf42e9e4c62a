//! A process group: signals to all of it, and whether anybody is left.
//!
//! The number of a group is the process number of its leader. The system gives a number to nobody
//! else as long as a process *or a group* has it; so it is ours while the leader has not been
//! reaped, and afterwards while a member is left. That is what the questions here rest on.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use std::time::Duration;

/// Pauses between two looks at something that will be over soon: short at first, then so long that
/// looking costs next to nothing.
pub(super) struct Pauses(Duration);

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

impl Pauses {
    pub(super) fn new() -> Self {
        Pauses(FIRST_PAUSE)
    }

    pub(super) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(LONGEST_PAUSE);
        pause
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Group(Pid);

impl Group {
    /// None for numbers that no group of a command has. A signal to "group 1" or "group 0" would
    /// reach every process, or our own group.
    pub(super) fn new(number: i32) -> Option<Self> {
        if number > 1 { Pid::from_raw(number).map(Group) } else { None }
    }

    pub(super) fn number(self) -> i32 {
        self.0.as_raw_nonzero().get()
    }

    #[cfg(target_os = "linux")]
    pub(super) fn leader(self) -> Pid {
        self.0
    }

    /// Asks all members to end. One that is stopped would see the request only once it goes on.
    pub(super) fn terminate(self) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
    }

    pub(super) fn kill(self) {
        self.signal(Signal::KILL);
    }

    pub(super) fn suspend(self) {
        self.signal(Signal::STOP);
    }

    pub(super) fn unsuspend(self) {
        self.signal(Signal::CONT);
    }

    /// Whether its leader is a child of ours that was not reaped.
    pub(super) fn has_own_leader(self) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        rustix::process::waitid(WaitId::Pid(self.0), look).is_ok()
    }

    /// Nobody there, or nobody we may signal: both are found out by looking who is left.
    fn signal(self, signal: Signal) {
        let _ = rustix::process::kill_process_group(self.0, signal);
    }

    /// Whether nobody is left, as far as the system tells without a look at every process: it
    /// counts the dead that nobody has reaped as members. For a group whose leader was reaped.
    pub(super) fn has_no_entry(self) -> bool {
        rustix::process::test_kill_process_group(self.0) == Err(Errno::SRCH)
            || self.was_given_away()
    }

    /// The leader was reaped, and yet its number is a process: somebody else's. So the group had
    /// ended before, and what has its number is not ours.
    fn was_given_away(self) -> bool {
        rustix::process::test_kill_process(self.0) != Err(Errno::SRCH)
    }

    /// As [`kill`](Self::kill), for a group whose leader was reaped.
    pub(super) fn kill_rest(self) {
        if !self.has_no_entry() {
            self.kill();
        }
    }

    /// As [`terminate`](Self::terminate), for a group whose leader was reaped.
    pub(super) fn terminate_rest(self) {
        if !self.has_no_entry() {
            self.terminate();
        }
    }

    /// Whether no member is alive. For a group whose leader was reaped.
    #[cfg(target_os = "linux")]
    pub(super) async fn is_gone(self) -> bool {
        if self.has_no_entry() {
            return true;
        }
        let number = self.number();
        // Thousands of processes take milliseconds to look through: not on a thread of the runtime.
        let look = tokio::task::spawn_blocking(move || super::table::has_living_member(number));
        let gone = matches!(look.await, Ok(Ok(false)));
        if gone {
            // Only dead ones were seen. One that came and went between two entries of the table was
            // not, and gets no further.
            self.kill_rest();
        }
        gone
    }

    /// Whether no member is there, be it as one who has died and was not reaped.
    #[cfg(not(target_os = "linux"))]
    pub(super) async fn is_gone(self) -> bool {
        self.has_no_entry()
    }
}
