//! Stopping commands together with the process that runs them, for a while or for good.

use super::Engine;

impl Engine {
    /// Stops the [commands](crate::Task::command) that run here, with everything in their process
    /// groups (SIGSTOP), until [`unsuspend_commands`](Self::unsuspend_commands). For a process that is
    /// about to stop itself, as it is asked to by Ctrl-Z: what it has started would go on, because each
    /// command has a group of its own.
    ///
    /// Nothing else changes. Time-outs go on; new commands begin and are not stopped. A process that
    /// stops at once needs nothing against the latter. What checks a
    /// [condition](crate::condition::command) is not stopped.
    pub fn suspend_commands(&self) {
        self.shared.running.suspend();
    }

    /// Lets the [commands](crate::Task::command) that run here go on (SIGCONT).
    pub fn unsuspend_commands(&self) {
        self.shared.running.unsuspend();
    }

    /// Kills the [commands](crate::Task::command) that run here, with everything in their process
    /// groups (SIGKILL), and each that begins later. For a process that is about to exit without waiting
    /// for anything; it may be called from any thread, and does not wait either.
    ///
    /// [`shutdown_now`](Self::shutdown_now) does this too, and hands the tasks back. While the engine is
    /// not shutting down, a task whose command was killed has failed. What checks a
    /// [condition](crate::condition::command) is killed when its wait is dropped.
    pub fn kill_commands(&self) {
        self.shared.running.kill();
    }
}
