//! Real processes. A test waits for what a command has done, never for time to pass, and leaves
//! nobody behind.

use super::table::{self, Process};
use super::takeover::end_all_within;
use super::unfinished::unfinished;
use super::*;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// Far more than anything here takes; a bound that is reached is a failure.
const LONG: Duration = Duration::from_secs(30);

const SHORT: Duration = Duration::from_millis(200);

struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Place { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A shell command in this folder.
    fn shell(&self, line: &str) -> Command {
        Command::shell(line).dir(self.folder.path())
    }

    /// Waits until a command has written this file, with a whole line.
    async fn written(&self, name: &str) -> String {
        let path = self.path(name);
        until(|| fs::read_to_string(&path).is_ok_and(|text| text.ends_with('\n'))).await;
        fs::read_to_string(&path).unwrap().trim().to_owned()
    }

    /// A process that a command has written the number of into this file.
    async fn process(&self, name: &str) -> Process {
        Process::read(self.written(name).await.parse().unwrap()).unwrap()
    }
}

async fn until(mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < LONG, "what was waited for did not come");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn is_alive(process: &Process) -> bool {
    Process::read(process.number).is_some_and(|now| now.start == process.start && now.living)
}

/// Ends a process that a test has left running on purpose.
fn end(process: &Process) {
    let pid = rustix::process::Pid::from_raw(process.number).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

fn start(command: &Command) -> Spawned {
    spawn(command, Start { grace: LONG, ..Start::default() }).unwrap()
}

/// Waits for its end, which comes, whether or not it is told.
async fn over(spawned: Spawned, told: CancellationToken) -> Ended {
    let ended = tokio::time::timeout(2 * LONG, spawned.wait(told)).await;
    ended.expect("a command did not end").unwrap()
}

async fn run(command: &Command) -> Ended {
    over(start(command), CancellationToken::new()).await
}

fn told() -> CancellationToken {
    let told = CancellationToken::new();
    told.cancel();
    told
}

// Output.

#[tokio::test]
async fn the_log_has_every_byte_as_it_was_written() {
    let place = Place::new();
    let log = place.path("logs/of/this/attempt");
    let command = Command::new("printf").arg(r"\n\n\377\200a\000b\r\n\n\tend");
    let settings = Start { log: Some(&log), ..Start::default() };
    let ended = over(spawn(&command, settings).unwrap(), CancellationToken::new()).await;
    let bytes = b"\n\n\xff\x80a\0b\r\n\n\tend";
    assert_eq!(fs::read(&log).unwrap(), bytes);
    assert_eq!(fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!((ended.log_dropped, ended.log_error.is_some()), (0, false));
    let finished = ended.into_result(Some(log.clone())).unwrap();
    assert_eq!(finished.stdout.as_bytes(), String::from_utf8_lossy(bytes).as_bytes());
    assert_eq!((finished.code, finished.stdout_truncated, finished.log), (0, false, Some(log)));
}

#[tokio::test]
async fn a_command_that_writes_nothing_leaves_no_log_not_even_an_old_one() {
    let place = Place::new();
    let log = place.path("logs/log");
    for (line, logged) in [("echo", true), ("true", false)] {
        let settings = Start { log: Some(&log), ..Start::default() };
        let spawned = spawn(&Command::shell(line), settings).unwrap();
        let ended = over(spawned, CancellationToken::new()).await;
        assert_eq!((ended.logged, log.exists()), (logged, logged));
    }
}

#[tokio::test]
async fn both_streams_go_to_the_log_and_only_one_is_the_result() {
    let place = Place::new();
    let log = place.path("log");
    let command = place.shell("echo out; echo err >&2; exit 3");
    let settings = Start { log: Some(&log), ..Start::default() };
    let ended = over(spawn(&command, settings).unwrap(), CancellationToken::new()).await;
    assert_eq!(ended.stdout, b"out\n");
    let text = fs::read_to_string(&log).unwrap();
    assert!(["out\nerr\n", "err\nout\n"].contains(&text.as_str()), "{text:?}");
    let failed = ended.into_result(None).unwrap_err().to_string();
    assert!(failed.contains("exit code 3") && failed.contains("err"), "{failed}");
}

#[tokio::test]
async fn in_one_stream_all_stands_in_the_order_in_which_it_was_written() {
    let place = Place::new();
    let log = place.path("log");
    let line = "for number in $(seq 500); do echo out $number; echo err $number >&2; done";
    let settings = Start { log: Some(&log), ..Start::default() };
    let command = place.shell(line).one_stream();
    let ended = over(spawn(&command, settings).unwrap(), CancellationToken::new()).await;
    let right: String = (1..=500).map(|number| format!("out {number}\nerr {number}\n")).collect();
    assert_eq!(fs::read_to_string(&log).unwrap(), right);
    assert_eq!(ended.stdout, right.as_bytes());
}

#[tokio::test]
async fn what_does_not_fit_the_log_is_dropped_and_counted() {
    let place = Place::new();
    let log = place.path("log");
    let settings = Start { log: Some(&log), log_max: 10, ..Start::default() };
    let command = Command::new("printf").arg("0123456789abcde");
    let ended = over(spawn(&command, settings).unwrap(), CancellationToken::new()).await;
    assert_eq!(fs::read(&log).unwrap(), b"0123456789");
    assert_eq!((ended.log_dropped, &ended.stdout[..]), (5, &b"0123456789abcde"[..]));
}

#[tokio::test]
async fn output_without_bound_is_kept_within_bounds() {
    let place = Place::new();
    let log = place.path("log");
    let settings = Start { log: Some(&log), log_max: 1 << 20, ..Start::default() };
    let command = place.shell("head -c 50000000 /dev/zero; printf END");
    let ended = over(spawn(&command, settings).unwrap(), CancellationToken::new()).await;
    assert_eq!(fs::metadata(&log).unwrap().len(), 1 << 20);
    assert_eq!(ended.log_dropped, 50_000_003 - (1 << 20));
    assert!(ended.stdout_truncated && ended.stdout.ends_with(b"\0END"));
    assert_eq!((ended.stdout.len(), ended.tail.len()), (64 << 10, 8 << 10));
}

/// The end of the leader may be heard of before what it wrote last.
#[tokio::test]
async fn what_a_command_writes_last_is_never_lost() {
    for _ in 0..200 {
        assert_eq!(run(&Command::new("printf").arg("last")).await.stdout, b"last");
    }
}

// Whoever outlives the leader.

#[tokio::test]
async fn a_background_process_that_holds_the_pipe_keeps_nobody_waiting_and_goes_on() {
    for background in ["sleep 1000", "setsid sleep 1000"] {
        let place = Place::new();
        let ended = run(&place.shell(&format!("{background} & echo $! > child; echo done"))).await;
        assert_eq!((ended.stdout, ended.told), (b"done\n".to_vec(), false));
        let child = place.process("child").await;
        assert!(is_alive(&child), "{background}");
        end(&child);
    }
}

#[tokio::test]
async fn a_background_process_that_writes_for_ever_does_not_keep_us_reading() {
    let place = Place::new();
    let ended = run(&place.shell("yes & echo $! > child")).await;
    assert!(ended.status.success());
    // Nobody reads any more, so it ends by itself.
    let child = place.written("child").await.parse().unwrap();
    until(|| Process::read(child).is_none_or(|child| !child.living)).await;
}

#[tokio::test]
async fn what_a_failed_command_leaves_behind_is_ended() {
    let place = Place::new();
    let spawned = start(&place.shell("sleep 1000 & echo $! > child; exit 7"));
    let group = spawned.group();
    let ended = over(spawned, CancellationToken::new()).await;
    assert_eq!((ended.status.code(), ended.told), (Some(7), false));
    assert!(!table::has_living_member(group).unwrap());
}

// Being told.

#[tokio::test]
async fn a_command_that_heeds_the_signal_ends_in_its_own_way() {
    let place = Place::new();
    let line = "trap 'echo bye; exit 3' TERM; echo > ready; while :; do sleep 0.01; done";
    let spawned = start(&place.shell(line));
    place.written("ready").await;
    let ended = over(spawned, told()).await;
    assert_eq!((ended.status.code(), ended.told), (Some(3), true));
    assert!(ended.stdout.ends_with(b"bye\n"));
}

#[tokio::test]
async fn a_command_that_ignores_the_signal_is_killed_after_the_grace() {
    let place = Place::new();
    let command = place.shell("trap '' TERM; echo > ready; while :; do sleep 1000; done");
    let spawned = spawn(&command, Start { grace: SHORT, ..Start::default() }).unwrap();
    let group = spawned.group();
    place.written("ready").await;
    let begin = Instant::now();
    let ended = over(spawned, told()).await;
    assert!(begin.elapsed() >= SHORT);
    assert_eq!((ended.status.signal(), ended.told), (Some(9), true));
    assert!(!table::has_living_member(group).unwrap());
}

#[tokio::test]
async fn a_background_process_that_ignores_the_signal_is_killed_though_the_leader_heeded_it() {
    let place = Place::new();
    let line = "(trap '' TERM; echo > ready; while :; do sleep 1000; done) & wait";
    let command = place.shell(line);
    let spawned = spawn(&command, Start { grace: SHORT, ..Start::default() }).unwrap();
    let group = spawned.group();
    place.written("ready").await;
    let begin = Instant::now();
    let ended = over(spawned, told()).await;
    assert!(begin.elapsed() >= SHORT, "it has its grace too");
    assert_eq!((ended.status.signal(), ended.told), (Some(15), true));
    assert!(!table::has_living_member(group).unwrap());
}

#[tokio::test]
async fn a_background_process_has_its_grace_to_write_and_end() {
    let place = Place::new();
    // More than a pipe holds, so that somebody must be reading.
    let late = "trap 'head -c 300000 /dev/zero; echo > ended; exit' TERM; echo > ready";
    let line = format!("({late}; while :; do sleep 0.01; done) & wait");
    let spawned = start(&place.shell(&line));
    place.written("ready").await;
    let ended = over(spawned, told()).await;
    assert_eq!(ended.status.signal(), Some(15));
    assert!(place.path("ended").exists(), "it was not killed in the middle");
    assert!(ended.stdout_truncated);
}

#[tokio::test]
async fn a_stopped_command_is_made_to_go_on_so_that_it_can_end() {
    let place = Place::new();
    let line = "trap 'exit 4' TERM; kill -STOP $$; while :; do sleep 0.01; done";
    let spawned = start(&place.shell(line));
    let stat = format!("/proc/{}/stat", spawned.group());
    until(|| fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T "))).await;
    let ended = over(spawned, told()).await;
    assert_eq!((ended.status.code(), ended.told), (Some(4), true));
}

#[tokio::test]
async fn one_told_before_it_is_waited_for_is_stopped_at_once() {
    let ended = over(start(&Command::new("sleep").arg("1000")), told()).await;
    assert_eq!((ended.status.signal(), ended.told), (Some(15), true));
}

#[tokio::test]
async fn one_that_had_ended_before_it_was_told_was_not_told() {
    let spawned = start(&Command::new("true"));
    let group = spawned.group();
    until(|| !Process::read(group).unwrap().living).await;
    let ended = over(spawned, told()).await;
    assert!(ended.status.success() && !ended.told);
}

#[tokio::test]
async fn dropping_a_command_kills_its_group_and_leaves_no_dead_leader() {
    let place = Place::new();
    let line = "trap '' TERM; sleep 1000 & echo > ready; wait";
    let spawned = start(&place.shell(line));
    let group = spawned.group();
    place.written("ready").await;
    drop(spawned);
    until(|| !table::has_living_member(group).unwrap()).await;
    until(|| Process::read(group).is_none()).await;
}

#[tokio::test]
async fn dropping_the_wait_in_the_middle_kills_the_group() {
    let place = Place::new();
    // Dropped while it is waited for, and while those who outlive the leader are.
    for line in [
        "sleep 1000 & echo > ready; wait",
        "trap '' TERM; sleep 1000 & trap - TERM; echo > ready; exit 1",
    ] {
        let spawned = start(&place.shell(line));
        let group = spawned.group();
        let waiting = tokio::spawn(spawned.wait(CancellationToken::new()));
        place.written("ready").await;
        if line.ends_with("exit 1") {
            until(|| Process::read(group).is_none()).await;
        }
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        until(|| !table::has_living_member(group).unwrap()).await;
        fs::remove_file(place.path("ready")).unwrap();
    }
}

#[test]
fn the_end_of_the_runtime_kills_the_group() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let place = Place::new();
    let first = runtime();
    let group = first.block_on(async {
        let spawned = start(&place.shell("sleep 1000 & echo > ready; wait"));
        let group = spawned.group();
        tokio::spawn(spawned.wait(CancellationToken::new()));
        place.written("ready").await;
        group
    });
    drop(first);
    runtime().block_on(until(|| !table::has_living_member(group).unwrap()));
}

// What cannot be started.

fn refusal(command: &Command) -> SpawnError {
    match spawn(command, Start::default()) {
        Ok(_) => panic!("{command:?} was started"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_missing_program_is_named_with_where_it_was_looked_for() {
    let command = Command::new("no-such-program").env("PATH", "/opt/none:/opt/empty");
    let error = refusal(&command);
    assert!(matches!(&error, SpawnError::NotFound { .. }) && !error.is_transient());
    let message = error.to_string();
    assert!(message.contains("\"no-such-program\"") && message.contains("/opt/none:/opt/empty"));
    let message = refusal(&Command::new("./no-such-program").dir("/tmp")).to_string();
    assert_eq!(message, "there is no file /tmp/./no-such-program");
}

#[tokio::test]
async fn a_missing_directory_is_told_from_a_missing_program() {
    let place = Place::new();
    let message = refusal(&Command::new("true").dir(place.path("gone"))).to_string();
    assert!(message.starts_with("the working directory") && message.contains("/gone"), "{message}");
    fs::write(place.path("file"), "").unwrap();
    let error = refusal(&Command::new("true").dir(place.path("file")));
    assert!(matches!(error, SpawnError::Directory { .. }), "{error}");
}

#[tokio::test]
async fn a_program_that_cannot_be_executed_says_why() {
    let place = Place::new();
    fs::write(place.path("script"), "#!/no/such/interpreter\n").unwrap();
    let command = Command::new("./script").dir(place.folder.path());
    assert!(matches!(refusal(&command), SpawnError::NotExecutable { .. }));
    let executable = fs::Permissions::from_mode(0o700);
    fs::set_permissions(place.path("script"), executable).unwrap();
    // Another test's child may hold the file open for writing for a moment.
    let mut error = refusal(&command);
    while matches!(error, SpawnError::Exhausted { .. }) {
        error = refusal(&command);
    }
    assert!(matches!(error, SpawnError::Interpreter { .. }), "{error}");
    let error = refusal(&Command::new("true").arg("a\0b"));
    assert!(matches!(error, SpawnError::Other { .. }), "{error}");
}

#[tokio::test]
async fn nothing_is_started_that_cannot_be_logged_or_noted() {
    let place = Place::new();
    fs::write(place.path("file"), "").unwrap();
    let command = place.shell("echo > begun");
    let log = place.path("file/log");
    let error = spawn(&command, Start { log: Some(&log), ..Start::default() }).err().unwrap();
    assert!(matches!(error, SpawnError::Log { .. }) && error.is_transient(), "{error}");
    let notes = Notes::new(place.path("none/notes"));
    let settings = Start { notes: Some((&notes, "a")), ..Start::default() };
    let error = spawn(&command, settings).err().unwrap();
    assert!(matches!(error, SpawnError::Notes(_)), "{error}");
    assert!(!place.path("begun").exists());
}

#[tokio::test]
async fn the_surroundings_are_what_was_said() {
    let place = Place::new();
    let env = vec![("B", "engine".into()), ("C", "engine".into())];
    let line = "echo $A $B $C ${HOME-none}; pwd";
    let command = place.shell(line).env("A", "x").env("A", "own").env("B", "own").env_clear();
    let spawned = spawn(&command, Start { env, ..Start::default() }).unwrap();
    let ended = over(spawned, CancellationToken::new()).await;
    let folder = place.folder.path().canonicalize().unwrap();
    let expected = format!("own engine engine none\n{}\n", folder.display());
    assert_eq!(String::from_utf8(ended.stdout).unwrap(), expected);
}

#[test]
fn what_a_command_left_survives_being_stored() {
    let log = Some(PathBuf::from("/var/log/x"));
    for log in [log, None] {
        let finished =
            Finished { code: 0, stdout: "a\n\u{fffd}".to_owned(), stdout_truncated: true, log };
        let text = serde_json::to_string(&finished).unwrap();
        assert_eq!(serde_json::from_str::<Finished>(&text).unwrap(), finished);
    }
    assert!(serde_json::from_str::<Finished>("{}").is_err());
}

// Notes and taking over.

#[tokio::test]
async fn a_command_is_noted_while_it_runs_and_carries_its_token() {
    let place = Place::new();
    let notes = Notes::new(place.path("notes"));
    let settings = Start { notes: Some((&notes, "7f-1")), ..Start::default() };
    let spawned = spawn(&place.shell("printf %s $TIDEGATE_EXECUTION"), settings).unwrap();
    let [open] = &unfinished(&place.path("notes")).unwrap()[..] else { panic!("not noted") };
    let noted = open.group.as_ref().unwrap();
    assert_eq!((open.token.as_str(), noted.group.number()), ("7f-1", spawned.group()));
    assert_eq!(noted.start, Process::read(spawned.group()).unwrap().start);
    assert_eq!(noted.boot, table::boot());
    let ended = over(spawned, CancellationToken::new()).await;
    assert_eq!(ended.stdout, b"7f-1");
    assert_eq!(unfinished(&place.path("notes")).unwrap(), []);
    assert_eq!(end_all(&place.path("notes")).await.unwrap(), 0);
}

#[tokio::test]
async fn one_that_could_not_be_started_is_not_noted() {
    let place = Place::new();
    let notes = Notes::new(place.path("notes"));
    let settings = Start { notes: Some((&notes, "a")), ..Start::default() };
    assert!(spawn(&Command::new("no-such-program"), settings).is_err());
    assert_eq!(unfinished(&place.path("notes")).unwrap(), []);
}

/// A process in a group of its own, as a dead worker leaves it. Ended with the test.
struct Left {
    child: std::process::Child,
    process: Process,
}

impl Left {
    fn new(line: &str, token: &str) -> Self {
        let mut command = std::process::Command::new("sh");
        command.args(["-ec", line]).env(notes::MARKER, token).process_group(0);
        // Whoever is left by a test that fails must not hold the output of the tests.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let process = Process::read(child.id().try_into().unwrap()).unwrap();
        Left { child, process }
    }

    fn is_alive(&self) -> bool {
        is_alive(&self.process)
    }

    fn note(&self, token: &str) -> String {
        let Process { number, start, .. } = self.process;
        format!("begin {token}\ngroup {token} {number} {start} {}\n", table::boot())
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        // Also what a test that fails leaves in its group.
        let group = group::Group::new(self.process.number).unwrap();
        match self.child.try_wait() {
            Ok(None) => group.kill(),
            _ => group.kill_rest(),
        }
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn a_noted_group_is_ended() {
    let place = Place::new();
    let (a, b) = (Left::new("exec sleep 1000", "x"), Left::new("exec sleep 1000", "y"));
    // Half a line, lines of nobody and one that is over change nothing.
    let text = format!("junk\n{}begin c\nover c\n{}over a", a.note("a"), b.note("b"));
    fs::write(place.path("notes"), text).unwrap();
    assert_eq!(end_all(&place.path("notes")).await.unwrap(), 2);
    assert!(!a.is_alive() && !b.is_alive());
    assert_eq!(end_all(&place.path("notes")).await.unwrap(), 0);
}

#[tokio::test]
async fn one_that_ignores_the_signal_is_killed_after_the_grace() {
    let place = Place::new();
    let line =
        format!("trap '' TERM; cd {}; echo > ready; sleep 1000", place.folder.path().display());
    let left = Left::new(&line, "x");
    place.written("ready").await;
    fs::write(place.path("notes"), left.note("a")).unwrap();
    let begin = Instant::now();
    assert_eq!(end_all_within(&place.path("notes"), SHORT, LONG).await.unwrap(), 1);
    assert!(begin.elapsed() >= SHORT);
    assert!(!table::has_living_member(left.process.number).unwrap());
}

#[tokio::test]
async fn one_that_does_not_end_is_an_error_after_a_bounded_time() {
    let place = Place::new();
    let line = format!(
        "trap '' TERM; cd {}; echo > ready; exec sleep 1000",
        place.folder.path().display()
    );
    let left = Left::new(&line, "x");
    place.written("ready").await;
    fs::write(place.path("notes"), left.note("a")).unwrap();
    let ended = end_all_within(&place.path("notes"), Duration::ZERO, Duration::ZERO).await;
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::TimedOut);
}

#[tokio::test]
async fn a_stranger_who_was_given_the_number_is_left_alone() {
    let place = Place::new();
    let stranger = Left::new("exec sleep 1000", "x");
    let Process { number, start, .. } = stranger.process;
    for noted in [start - 1, start + 1, 0] {
        let text = format!("begin a\ngroup a {number} {noted} {}\n", table::boot());
        fs::write(place.path("notes"), text).unwrap();
        assert_eq!(end_all(&place.path("notes")).await.unwrap(), 0);
    }
    assert!(stranger.is_alive());
}

#[tokio::test]
async fn what_was_noted_before_the_machine_started_is_left_alone() {
    let place = Place::new();
    let stranger = Left::new("exec sleep 1000", "a");
    let Process { number, start, .. } = stranger.process;
    let boot = "00000000-0000-0000-0000-000000000000";
    fs::write(place.path("notes"), format!("group a {number} {start} {boot}\n")).unwrap();
    assert_eq!(end_all(&place.path("notes")).await.unwrap(), 0);
    assert!(stranger.is_alive());
}

#[tokio::test]
async fn one_killed_before_its_group_was_noted_is_found_by_its_token() {
    let place = Place::new();
    // Not by a part of it.
    let (ours, other, third) = (
        Left::new("exec sleep 1000", "5e7a"),
        Left::new("exec sleep 1000", "5e7a0"),
        Left::new("exec sleep 1000", "5e7"),
    );
    // The environment of a process is its own once its program runs.
    until(|| ours.process.marks() == ["5e7a"]).await;
    fs::write(place.path("notes"), "begin 5e7a\n").unwrap();
    assert_eq!(end_all(&place.path("notes")).await.unwrap(), 1);
    assert!(!ours.is_alive() && other.is_alive() && third.is_alive());
}

#[tokio::test]
async fn a_group_without_its_leader_is_known_by_a_member_with_the_token() {
    for (background, token, ended) in [
        ("sleep 1000", "lead1", 1),
        // Nothing tells it from a stranger who was given the number later.
        ("env -i sleep 1000", "lead2", 0),
    ] {
        let place = Place::new();
        let pid = place.path("child");
        let line = format!("{background} & echo $! > {}; wait", pid.display());
        let mut left = Left::new(&line, token);
        let child = place.process("child").await;
        // While a program takes the place of another, nobody can read its environment.
        let comm = format!("/proc/{}/comm", child.number);
        until(|| fs::read_to_string(&comm).is_ok_and(|name| name == "sleep\n")).await;
        until(|| child.marks().is_empty() == (ended == 0)).await;
        fs::write(place.path("notes"), left.note(token)).unwrap();
        left.child.kill().unwrap();
        left.child.wait().unwrap();
        assert!(is_alive(&child));
        assert_eq!(end_all(&place.path("notes")).await.unwrap(), ended, "{background}");
        assert_eq!(is_alive(&child), ended == 0, "{background}");
        if ended == 0 {
            end(&child);
        }
    }
}

#[tokio::test]
async fn who_outlives_a_leader_that_heeded_the_signal_is_ended_too() {
    let place = Place::new();
    let file = place.path("child");
    let line =
        format!("(trap '' TERM; exec env -i sleep 1000) & echo $! > {}; wait", file.display());
    let mut left = Left::new(&line, "0utl");
    let child = place.process("child").await;
    until(|| child.marks().is_empty()).await;
    fs::write(place.path("notes"), left.note("0utl")).unwrap();
    // Once its parent has reaped it, nothing but what was seen before tells whose group it was.
    let reaper = std::thread::spawn(move || left.child.wait().map(|_| left));
    assert_eq!(end_all_within(&place.path("notes"), SHORT, LONG).await.unwrap(), 1);
    assert!(!is_alive(&child));
    drop(reaper.join().unwrap().unwrap());
}

/// Run by the tests below as a process of its own, which does what its environment says.
#[test]
fn a_worker_of_its_own() {
    let Ok(role) = std::env::var("TIDEGATE_TEST_ROLE") else { return };
    let folder = PathBuf::from(std::env::var_os("TIDEGATE_TEST_FOLDER").unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match role.as_str() {
            "owner" => {
                let notes = Notes::new(folder.join("notes"));
                let settings = Start { notes: Some((&notes, "own3r")), ..Start::default() };
                // A member without the token that outlives the leader, and one with it that has left
                // the group.
                let line = "(trap '' TERM; exec env -i sleep 1000) & echo $! > member
                    setsid sh -c 'echo $$ > escaped; exec sleep 1000' & wait";
                let spawned = spawn(&Command::shell(line).dir(&folder), settings).unwrap();
                fs::write(folder.join("leader"), format!("{}\n", spawned.group())).unwrap();
                spawned.wait(CancellationToken::new()).await.unwrap();
            }
            _ => {
                let ended = end_all(&folder.join("notes")).await;
                assert_eq!(ended.unwrap_err().kind(), ErrorKind::ResourceBusy);
                fs::write(folder.join("refused"), "\n").unwrap();
            }
        }
    });
}

fn worker(role: &str, place: &Path) -> std::process::Command {
    let mut worker = std::process::Command::new(std::env::current_exe().unwrap());
    worker.args(["--exact", "process::tests::a_worker_of_its_own"]).process_group(0);
    worker.stdout(Stdio::null()).stderr(Stdio::null());
    worker.env("TIDEGATE_TEST_ROLE", role).env("TIDEGATE_TEST_FOLDER", place);
    worker
}

#[tokio::test]
async fn everything_of_a_killed_workers_command_is_ended_before_another_may_begin_it() {
    let place = Place::new();
    let mut owner = worker("owner", place.folder.path()).spawn().unwrap();
    let mut command = Vec::new();
    for name in ["leader", "member", "escaped"] {
        command.push(place.process(name).await);
    }
    until(|| command[1].marks().is_empty()).await;
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert!(command.iter().all(is_alive));
    assert_eq!(end_all_within(&place.path("notes"), SHORT, LONG).await.unwrap(), 1);
    assert!(!command.iter().any(is_alive));
    assert_eq!(end_all(&place.path("notes")).await.unwrap(), 0);
}

#[tokio::test]
async fn one_who_is_part_of_the_command_ends_neither_itself_nor_the_command() {
    for text in ["begin n3st\n", "begin n3st\ngroup n3st GROUP START BOOT\n"] {
        let place = Place::new();
        // Its shell is the command's leader, and waits for it.
        let inner = worker("nested", place.folder.path());
        let args = inner.get_args().map(|arg| arg.to_str().unwrap()).collect::<Vec<_>>().join(" ");
        let program = inner.get_program().to_str().unwrap();
        let folder = place.folder.path().display();
        let line = format!(
            "until test -e {folder}/notes; do sleep 0.01; done
             TIDEGATE_TEST_ROLE=nested TIDEGATE_TEST_FOLDER={folder} {program} {args} >{folder}/said
             echo > {folder}/after"
        );
        let mut left = Left::new(&line, "n3st");
        let Process { number, start, .. } = left.process;
        let text = text.replace("GROUP", &number.to_string());
        let text = text.replace("START", &start.to_string()).replace("BOOT", table::boot());
        fs::write(place.path("new"), text).unwrap();
        fs::rename(place.path("new"), place.path("notes")).unwrap();
        let status = left.child.wait().unwrap();
        let said = fs::read_to_string(place.path("said")).unwrap_or_default();
        assert!(status.success(), "{said}");
        assert!(place.path("refused").exists() && place.path("after").exists(), "{said}");
    }
}
