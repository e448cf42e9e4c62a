//! Kills a real worker process again and again, and looks at what it leaves.
//!
//! `cargo run --release -p tidegate-bench crash [KILLS]`. A child process runs an engine on a SQLite
//! file under steady load: runs of one task, chains, waits, retries, cancels, tasks under a limit, tasks
//! that park and wait for a signal, a step and a child. It writes every acknowledged submit, cancel and
//! signal to a log of its own. The parent kills it with SIGKILL at a random instant and starts the next
//! one on the same file. At the end one more child runs until nothing is open, and another compares:
//! every acknowledged submit is there, every task has exactly one recorded end, what was cancelled
//! stayed so, every acknowledged signal was received, no stored step was repeated, the limit was never
//! exceeded, no command had a twin, nobody owns anything, the audit is clean.
//!
//! With `--processes N`, N workers and one client that only submits, cancels and signals are at the file
//! at once. A random one of them is killed each time and started again beside the others.
//!
//! With `--postgres`, the store is in a PostgreSQL server of its own (the feature `postgres`), which is
//! crashed now and then too: under a worker that lives on and has to go on by itself, and together with
//! the worker.
//!
//! - `load`: the tasks and the submitters. `check`: the comparison. `poison`: a harness of its own.

mod check;
mod load;
mod poison;

use crate::bare;
use crate::server::Server;
use check::check;
use load::{builder, load};
pub(crate) use poison::poison;
use std::collections::{BTreeMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tidegate::engine::RunsPage;
use tidegate::{Engine, RunId};

/// Kills in one run of the command, unless it is told otherwise.
const KILLS: u32 = 200;

/// The longest a child lives before it is killed, on a file and with a server, which takes longer for
/// everything; and the longest the last may take.
const LIFE_MAX: Duration = Duration::from_millis(250);
const SERVED_LIFE_MAX: Duration = Duration::from_secs(1);
const DRAIN_MAX: Duration = Duration::from_secs(120);

/// Every kill of this number is preceded by a crash of the server.
const CRASH_EVERY: u32 = 3;

/// The longest that a worker may take to go on when its server is back.
const RESUME_MAX: Duration = Duration::from_secs(60);

/// The arguments of the command.
#[derive(Debug, PartialEq)]
struct CrashOptions {
    kills: u32,
    /// Workers at once, beside a client; `None` for one that submits to itself.
    processes: Option<usize>,
    is_on_postgres: bool,
}

impl CrashOptions {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = CrashOptions { kills: KILLS, processes: None, is_on_postgres: false };
        let number = |what: &str| format!("\"{what}\" is not a number, such as 3");
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--processes" => {
                    let count = arguments.next().map_or("", String::as_str);
                    let count = count.parse().ok().filter(|&count| count > 0);
                    options.processes = Some(count.ok_or_else(|| number(argument))?);
                }
                "--postgres" if cfg!(feature = "postgres") => options.is_on_postgres = true,
                "--postgres" => return Err("--postgres needs the feature `postgres`".to_owned()),
                kills => options.kills = kills.parse().map_err(|_| number(kills))?,
            }
        }
        Ok(options)
    }
}

/// The directory that all children share.
struct Place(PathBuf);

/// The file in it with the address of a store that is elsewhere.
const STORE: &str = "store";

fn store_address(place: &Path) -> String {
    let sqlite = || format!("sqlite:{}", place.join("jobs.db").display());
    std::fs::read_to_string(place.join(STORE)).unwrap_or_else(|_| sqlite())
}

/// Whether the store may be away for a while.
fn has_outages(place: &Path) -> bool {
    place.join(STORE).exists()
}

fn log(place: &Path, name: &str) -> File {
    let file = OpenOptions::new().create(true).append(true).open(place.join(name));
    file.expect("a log can be written")
}

pub(crate) fn command(arguments: &[String]) {
    let options = CrashOptions::parse(arguments).unwrap_or_else(|wrong| {
        eprintln!("{wrong}; crash [KILLS] [--processes WORKERS] [--postgres] is what there is");
        std::process::exit(2);
    });
    let place = bare::scratch();
    let server = options.is_on_postgres.then(|| start_server(place.path(), &options));
    let (place, server) = (place.path(), server.as_ref());
    std::fs::create_dir(place.join("held")).expect("a folder can be made");
    let began = Instant::now();
    let killed = match options.processes {
        None => kill_one_by_one(place, options.kills, server),
        Some(workers) => kill_beside_others(place, options.kills, workers, server),
    };
    let mode = if options.processes.is_none() { "check-alone" } else { "check" };
    let summary = last_words(place, mode);
    println!("{killed} in {:.1} s; {summary}", began.elapsed().as_secs_f64());
}

/// Starts a server, and notes the address of the store in it.
fn start_server(place: &Path, options: &CrashOptions) -> Server {
    let server = Server::start();
    // A single worker has none beside it that could take it for dead while it connects again.
    let grace = if options.processes.is_none() { "0s" } else { "3s" };
    let address = server.store_url("crash", &format!("&restart_grace={grace}"));
    std::fs::write(place.join(STORE), address).expect("a file can be written");
    server
}

/// One process after the other. Says whom it has killed.
fn kill_one_by_one(place: &Path, kills: u32, server: Option<&Server>) -> String {
    let mut random = fastrand::Rng::new();
    let mut crashes = 0;
    for kill_number in 1..=kills {
        let mut child = start(place, "load");
        thread::sleep(random_life(&mut random, server));
        if let Some(server) = server.filter(|_| kill_number % CRASH_EVERY == 0) {
            crashes += 1;
            if crashes % 2 == 1 {
                server.restart();
                wait_for_progress(place, &mut child);
            } else {
                // Both are gone at once.
                thread::scope(|scope| {
                    scope.spawn(|| server.restart());
                    thread::sleep(random_life(&mut random, Some(server)));
                    kill(&mut child);
                });
            }
        }
        kill(&mut child);
    }
    drain_all(place);
    format!("{kills} kills{}", server.map_or_else(String::new, |_| tell_crashes(place, crashes)))
}

/// Several workers and a client at once, of which one is killed and started again each time. Says whom
/// it has killed.
fn kill_beside_others(place: &Path, kills: u32, workers: usize, server: Option<&Server>) -> String {
    let mut random = fastrand::Rng::new();
    let mode = |at: usize| if at == workers { "client" } else { "work" };
    let mut children: Vec<Child> = (0..=workers).map(|at| start(place, mode(at))).collect();
    let (mut clients, mut crashes) = (0, 0);
    for kill_number in 1..=kills {
        thread::sleep(random_life(&mut random, server));
        if let Some(server) = server.filter(|_| kill_number % CRASH_EVERY == 0) {
            crashes += 1;
            server.restart();
            wait_for_progress(place, &mut children[workers]);
        }
        let at = random.usize(..=workers);
        clients += u32::from(at == workers);
        kill(&mut children[at]);
        children[at] = start(place, mode(at));
    }
    kill(&mut children.pop().expect("the client is the last"));
    // With the help of those that are left, who then go in good order.
    drain_all(place);
    for mut child in children {
        drop(child.stdin.take());
        let status = child.wait().expect("a child that was told to go has gone");
        assert!(status.success(), "a worker failed: {status}");
    }
    let killed = format!("{clients} of the client, {} of workers", kills - clients);
    let crashed = server.map_or_else(String::new, |_| tell_crashes(place, crashes));
    format!("{kills} kills beside others ({killed}){crashed}")
}

/// The crashes of the server in words; prints the errors that submitters had because of them.
fn tell_crashes(place: &Path, crashes: u32) -> String {
    let outages = std::fs::read_to_string(place.join("outages")).unwrap_or_default();
    let mut errors: BTreeMap<&str, u32> = BTreeMap::new();
    outages.lines().for_each(|error| *errors.entry(error).or_default() += 1);
    for (error, count) in errors {
        eprintln!("{count} times: {error}");
    }
    let failed = outages.lines().count();
    format!(" and {crashes} crashes of the server (after which {failed} submits were refused)")
}

/// Returns when the child has had something acknowledged by a server that is back.
fn wait_for_progress(place: &Path, child: &mut Child) {
    let size = || std::fs::metadata(place.join("acknowledged")).map_or(0, |file| file.len());
    let (began, before) = (Instant::now(), size());
    while size() == before {
        let ended = child.try_wait().expect("a child can be looked at");
        assert!(ended.is_none(), "a worker ended when its server was restarted: {ended:?}");
        let waited = began.elapsed();
        assert!(waited < RESUME_MAX, "nothing was acknowledged for {waited:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Starts a child and waits until it works.
fn start(place: &Path, mode: &str) -> Child {
    let mut child = spawn(place, mode);
    wait_for_line(&mut child, "started");
    child
}

fn kill(child: &mut Child) {
    child.kill().expect("a child can be killed");
    child.wait().expect("a child that was killed is gone");
}

fn drain_all(place: &Path) {
    let mut last = spawn(place, "drain");
    wait_for_line(&mut last, "drained");
    let status = last.wait().expect("a child that was waited for is gone");
    assert!(status.success(), "the last worker failed: {status}");
}

/// Lets a child run to its end; the last line that it prints.
fn last_words(place: &Path, mode: &str) -> String {
    let mut child = spawn(place, mode);
    let last = output_lines(&mut child).last();
    let status = child.wait().expect("a child ends");
    assert!(status.success(), "the {mode} failed: {status}");
    last.expect("it prints a line")
}

fn random_life(random: &mut fastrand::Rng, server: Option<&Server>) -> Duration {
    let longest = if server.is_some() { SERVED_LIFE_MAX } else { LIFE_MAX };
    // Many die young: while they take over what the one before has left.
    longest.mul_f64(random.f64() * random.f64())
}

fn spawn(place: &Path, mode: &str) -> Child {
    let program = std::env::current_exe().expect("this program has a path");
    let mut child = Command::new(program);
    child.arg("crash-worker").arg(mode).arg(place);
    // Notes and logs of a store that is elsewhere.
    child.env("XDG_STATE_HOME", place.join("state"));
    child.stdin(Stdio::piped()).stdout(Stdio::piped());
    child.spawn().expect("this program can be run again")
}

fn output_lines(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    let output: ChildStdout = child.stdout.take().expect("its output is piped");
    BufReader::new(output).lines().map_while(Result::ok)
}

fn wait_for_line(child: &mut Child, wanted: &str) {
    let found = output_lines(child).any(|line| line == wanted);
    assert!(found, "a worker ended before it said \"{wanted}\"");
}

/// The work of a child.
pub(crate) fn worker(arguments: &[String]) {
    let [mode, place] = arguments else { panic!("a parent gives a mode and a place") };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let place = Path::new(place);
        match mode.as_str() {
            "poison" => return poison::with_poison(place).await,
            "check" => return println!("{}", check(place, false).await),
            "check-alone" => return println!("{}", check(place, true).await),
            _ => {}
        }
        let engine = match mode.as_str() {
            "client" => builder(place).connect().await,
            _ => builder(place).start().await,
        };
        let engine = engine.expect("the engine starts");
        println!("started");
        match mode.as_str() {
            "load" | "client" => load(&engine, place).await,
            "work" => work(&engine).await,
            _ => {
                signal_all(&engine, place).await;
                drain(&engine).await;
            }
        }
    });
}

/// Works until its parent lets go of it.
async fn work(engine: &Engine) {
    let over = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    over.await.expect("nobody panics while reading").expect("its input is a pipe");
    engine.shutdown(Duration::from_secs(5)).await;
}

/// Those whose signal was not acknowledged may wait for ever: they get one that brings nothing.
async fn signal_all(engine: &Engine, place: &Path) {
    let acknowledged = std::fs::read_to_string(place.join("acknowledged")).unwrap_or_default();
    let lines = acknowledged.lines().filter_map(|line| line.strip_prefix("signal "));
    let signalled: HashSet<RunId> = lines.filter_map(|id| id.parse().ok()).collect();
    let workflow = Some("signalled".to_owned());
    let page = RunsPage { open: true, limit: u32::MAX, workflow, ..Default::default() };
    for run in engine.runs(page).await.expect("the store can be read") {
        if !signalled.contains(&run.id) {
            // It may have had one that was not acknowledged, and be over by now.
            let _ = engine.signal(run.id, "go", 0).await;
        }
    }
}

/// Runs until nothing is open.
async fn drain(engine: &Engine) {
    let page = || RunsPage { open: true, limit: 1, ..Default::default() };
    let began = Instant::now();
    while !engine.runs(page()).await.expect("the store can be read").is_empty() {
        assert!(began.elapsed() < DRAIN_MAX, "runs are left over: {:?}", engine.metrics());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    engine.shutdown(Duration::from_secs(5)).await;
    println!("drained");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<CrashOptions, String> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        CrashOptions::parse(&words)
    }

    #[test]
    fn kills_processes_and_the_store_may_be_given_in_any_order() {
        let options = |kills, processes, is_on_postgres| {
            Ok(CrashOptions { kills, processes, is_on_postgres })
        };
        assert_eq!(parse(""), options(KILLS, None, false));
        assert_eq!(parse("7"), options(7, None, false));
        assert_eq!(parse("--processes 3 9"), options(9, Some(3), false));
        if cfg!(feature = "postgres") {
            assert_eq!(parse("--postgres 9"), options(9, None, true));
        }
        for wrong in ["--processes", "--processes 0", "some", "--kills 3"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
