//! What tests of real runs share: the binary left running, waiting for what it does, and its words
//! without times and ids.

use crate::support::{Answer, Scene};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A command that notes each time it is begun, and if it finds another copy of itself alive, and that
/// lasts, with a child of its own, until it is told to stop or there is a file `enough`.
pub(crate) const LONG: &str = "exec 9>lock; flock -n 9 || { echo twin >> twins; exit 9; }; \
    echo $$ >> begun; if [ -e stubborn ]; then trap '' TERM; fi; \
    sleep 3600 & while [ ! -e enough ]; do sleep 0.02; done; kill -9 $!; wait $! 2>/dev/null || :";

impl Scene {
    /// The binary, left running.
    pub(crate) fn begin(&self, arguments: &[&str]) -> Running<'_> {
        self.begin_with(self.command("", arguments).stderr(Stdio::piped()))
    }

    /// The same for a command that was made already.
    pub(crate) fn begin_with(&self, command: &mut Command) -> Running<'_> {
        self.begin_to(command, Stdio::piped())
    }

    /// The same with its stdout to somewhere else.
    pub(crate) fn begin_to(&self, command: &mut Command, out: impl Into<Stdio>) -> Running<'_> {
        Running { scene: self, child: command.stdout(out).spawn().unwrap() }
    }

    /// The binary, left running, with what it says to stderr in a file `said`.
    pub(crate) fn begin_aloud(&self, arguments: &[&str]) -> Running<'_> {
        let said = File::create(self.path().join("said")).unwrap();
        self.begin_with(self.command("", arguments).stderr(said))
    }

    /// Waits until the one that was begun aloud has said this.
    pub(crate) async fn said(&self, what: &str) {
        until(&format!("\"{what}\" is said"), || self.read("said").contains(what)).await;
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path().join(path)).unwrap_or_default()
    }

    pub(crate) fn touch(&self, path: &str) {
        fs::write(self.path().join(path), "").unwrap();
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        self.path().join(path).exists()
    }

    /// Whether no process holds the lock of [`LONG`]: nothing of it is left.
    pub(crate) fn is_gone(&self) -> bool {
        File::open(self.path().join("lock")).unwrap().try_lock().is_ok()
    }

    /// Waits until [`LONG`] has begun so many times.
    pub(crate) async fn begun(&self, times: usize) {
        until("the command has begun", || self.read("begun").lines().count() >= times).await;
    }
}

/// Ended when it is dropped, so that a test that fails leaves nothing behind.
pub(crate) struct Running<'s> {
    scene: &'s Scene,
    child: Child,
}

impl Running<'_> {
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// By the name of the signal.
    pub(crate) fn signal(&self, name: &str) {
        signal(name, self.child.id());
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Answer {
        // What it says fits into the pipes.
        let code = self.child.wait().unwrap().code();
        let read = |pipe: &mut dyn std::io::Read| {
            let mut text = String::new();
            pipe.read_to_string(&mut text).unwrap();
            self.scene.neutral(&text)
        };
        let out = read(self.child.stdout.as_mut().unwrap());
        let err = read(self.child.stderr.as_mut().unwrap());
        Answer { code, out, err }
    }

    /// Waits for its end, which is sure to come; its exit code. What it says stays unread.
    pub(crate) async fn exit_code(mut self) -> Option<i32> {
        let mut status = None;
        until("it has ended", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        })
        .await;
        status.and_then(|status| status.code())
    }

    /// Waits for its end, of which only the exit code is wanted.
    pub(crate) fn code(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// As the system does when there is no memory left.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // What a killed one has left running holds the lock of its command.
        let begun = self.scene.read("begun");
        for process in begun.lines().filter(|_| self.scene.has("lock") && !self.scene.is_gone()) {
            let _ = Command::new("kill").args(["-9", "--", &format!("-{process}")]).status();
        }
    }
}

pub(crate) fn signal(name: &str, process: u32) {
    let sent = Command::new("kill").args([format!("-{name}"), process.to_string()]).status();
    assert!(sent.unwrap().success());
}

/// Waits for something that is sure to come.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    // To look may be to run a command.
    let pauses =
        (0..1_000).map(|look| Duration::from_millis(1 + look).min(Duration::from_millis(50)));
    for pause in pauses {
        if is_so() {
            return;
        }
        tokio::time::sleep(pause).await;
    }
    panic!("{what} did not come true");
}

/// The words without times and ids, which differ from run to run.
pub(crate) fn calm(text: &str) -> String {
    let line = |line: &str| {
        let line = match line.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
            Some((time, rest)) if time.len() == 8 => format!("[TIME] {rest}"),
            _ => line.to_owned(),
        };
        let line = match line.split_once("succeeded in ") {
            Some((before, _)) => format!("{before}succeeded in TIME"),
            None => line,
        };
        let is_part = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
        let ids = line.split(|letter| !is_part(letter)).filter(|word| word.len() == 26);
        let calm = ids.fold(line.clone(), |line, id| line.replace(id, "RUN"));
        calm + "\n"
    };
    text.lines().map(line).collect()
}

impl Answer {
    /// What commands have written, if all was well.
    pub(crate) fn succeeded(self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.out, self.err);
        self.out
    }
}

/// Whether there is nothing in a folder.
pub(crate) fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_none())
}
