//! The built-in conditions, on real files, programs and sockets.
//!
//! A target of its own, because it is built and run once more without the feature `watch`.

#![allow(clippy::unwrap_used)]

use futures_util::future::join_all;
use std::path::Path;
use std::time::Duration;
use tidegate::process::Command;
use tidegate::{Condition, SlotPool, TaskError, TaskHandle, WaitError, condition};
use tokio::net::TcpSocket;

/// Between two looks.
const EVERY: Duration = Duration::from_millis(10);

/// Far more than any machine needs for what is waited for here.
const ENOUGH: Duration = Duration::from_secs(60);

async fn handle() -> TaskHandle {
    TaskHandle::new(SlotPool::new(1).unwrap().acquire().await.unwrap())
}

/// Waits for it; not for ever.
async fn met(condition: Condition) -> Result<(), WaitError> {
    handle().await.defer_until(condition, EVERY).timeout(ENOUGH).await
}

/// Whether it was not met when it was looked at once.
async fn not_yet(condition: Condition) -> bool {
    let handle = handle().await;
    let looked = handle.defer_until(condition, ENOUGH * 10);
    // The wait gives its slot back when the first look has said no, or has taken long.
    let slot_is_free = async {
        while handle.is_slot_held() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        ended = looked => {
            ended.unwrap();
            false
        }
        () = slot_is_free => true,
    }
}

/// Waits until it is so; not for ever.
async fn until(mut so: impl FnMut() -> bool) {
    let wait = async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(ENOUGH, wait).await.expect("it becomes so");
}

async fn failure(condition: Condition) -> TaskError {
    match met(condition).await.unwrap_err() {
        WaitError::Failed(error) => error,
        other => panic!("{other:?}"),
    }
}

/// A shell command that counts its runs in a file and then does something else.
fn counting(log: &Path, then: &str) -> Condition {
    let script = format!("echo x >> '{}'; {then}", log.display());
    condition::command(Command::new("sh").args(["-c", &script]))
}

fn runs(log: &Path) -> usize {
    std::fs::read_to_string(log).unwrap_or_default().lines().count()
}

/// A port that is taken, so that no other test gets it, and on which nobody listens.
fn nobody_listens() -> (TcpSocket, String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    (socket, address)
}

fn background_tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

#[tokio::test]
async fn a_file_is_waited_for_until_it_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("in.csv");
    assert!(not_yet(condition::file(&path)).await);
    // Neither is something below a file that is no folder.
    std::fs::write(dir.path().join("file"), "").unwrap();
    assert!(not_yet(condition::file(dir.path().join("file/in.csv"))).await);
    let (waited, ()) = tokio::join!(met(condition::file(&path)), async {
        tokio::task::yield_now().await;
        std::fs::write(&path, "").unwrap();
    });
    waited.unwrap();
    met(condition::file(dir.path())).await.unwrap();
}

#[tokio::test]
async fn a_path_that_cannot_be_looked_at_ends_the_wait() {
    let error = failure(condition::file("a\0b")).await;
    assert!(error.to_string().starts_with("cannot look at a\0b: "), "{error}");
    assert!(!error.is_permanent());
    #[cfg(unix)]
    {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("loop");
        std::os::unix::fs::symlink(&path, &path).unwrap();
        for condition in [condition::file(&path), condition::file_unchanged(&path, EVERY)] {
            let error = failure(condition).await;
            let expected = format!("cannot look at {}: ", path.display());
            assert!(error.to_string().starts_with(&expected), "{error}");
        }
    }
}

/// On paused time, so that the file stays as it is for exactly as long as the test says.
#[tokio::test(start_paused = true)]
async fn a_file_counts_as_unchanged_when_it_has_stayed_the_same_for_long_enough() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("growing");
    let handle = handle().await;
    let start = tokio::time::Instant::now();
    let quiet = Duration::from_secs(10);
    let every = Duration::from_secs(1);
    let wait = handle.defer_until(condition::file_unchanged(&path, quiet), every).jitter(0.0);
    let write = async {
        for size in 1..=5 {
            tokio::time::sleep(Duration::from_millis(5_500)).await;
            std::fs::write(&path, "x".repeat(size)).unwrap();
        }
    };
    let (waited, ()) = tokio::join!(wait, write);
    waited.unwrap();
    // Last written at 27.5 s, seen so at 28 s, or at once if it is told.
    let (earliest, latest) = (Duration::from_millis(37_500), Duration::from_secs(38));
    let told = cfg!(feature = "watch") && (earliest..latest).contains(&start.elapsed());
    assert!(told || start.elapsed() == latest, "{:?}", start.elapsed());
    let start = tokio::time::Instant::now();
    // Nothing is known about the past of a file that is seen for the first time.
    let wait = handle.defer_until(condition::file_unchanged(&path, quiet), every).jitter(0.0);
    wait.await.unwrap();
    assert_eq!(start.elapsed(), quiet);
    met(condition::file_unchanged(&path, Duration::ZERO)).await.unwrap();
}

#[tokio::test]
async fn a_port_is_waited_for_until_somebody_listens() {
    let (socket, address) = nobody_listens();
    assert!(not_yet(condition::tcp(&address)).await);
    let listen = async {
        tokio::task::yield_now().await;
        socket.listen(8).unwrap()
    };
    let (waited, _listener) = tokio::join!(met(condition::tcp(&address)), listen);
    waited.unwrap();
    met(condition::tcp(address.replace("127.0.0.1", "localhost"))).await.unwrap();
}

#[tokio::test]
async fn an_address_that_is_none_ends_the_wait() {
    for wrong in ["", "localhost", "localhost:", "localhost:http", "localhost:99999", ":80", "::1"]
    {
        let error = failure(condition::tcp(wrong)).await;
        assert_eq!(error.to_string(), format!("\"{wrong}\" is not of the form host:port"));
        assert!(error.is_permanent());
    }
}

#[tokio::test]
async fn a_command_is_run_until_it_succeeds() {
    met(condition::command(Command::new("true"))).await.unwrap();
    assert!(not_yet(condition::command(Command::new("false"))).await);
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let third = format!("test $(wc -l < '{}') -ge 3", log.display());
    met(counting(&log, &third)).await.unwrap();
    assert_eq!(runs(&log), 3);
}

#[tokio::test]
async fn a_program_that_cannot_be_started_ends_the_wait() {
    let error = failure(condition::command(Command::new("no-such-program").arg("x"))).await;
    let says = "there is no program \"no-such-program\" in PATH (";
    assert!(error.to_string().starts_with(says), "{error}");
    assert!(error.is_permanent());
}

/// All subscribe before the first look, which is made by a task that the first of them spawns.
#[tokio::test]
async fn any_number_of_tasks_that_wait_for_the_same_make_one_check() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let fifth = format!("test $(wc -l < '{}') -ge 5", log.display());
    let pool = SlotPool::new(200).unwrap();
    let waits = (0..200).map(async |_| {
        let handle = TaskHandle::new(pool.acquire().await.unwrap());
        handle.defer_until(counting(&log, &fifth), EVERY).timeout(ENOUGH).await
    });
    for waited in join_all(waits).await {
        waited.unwrap();
    }
    assert_eq!(runs(&log), 5);
}

#[tokio::test]
async fn waits_at_another_pace_or_for_something_else_are_not_merged() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let handle = handle().await;
    let waits = handle.wait_all([
        handle.defer_until(counting(&log, "true"), EVERY),
        handle.defer_until(counting(&log, "true"), EVERY),
        handle.defer_until(counting(&log, "true"), EVERY * 2),
        handle.defer_until(counting(&log, "true"), EVERY).jitter(0.5),
        handle.defer_until(counting(&log, "exit 0"), EVERY),
    ]);
    waits.await.unwrap();
    assert_eq!(runs(&log), 4, "only the first two are the same");
}

/// The driver slept on until the next look of the first was due: it was not told that the timer it
/// slept for had become a look to be made at once.
#[tokio::test(start_paused = true)]
async fn whoever_comes_later_gets_an_answer_at_once_and_shares_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("in.csv");
    let pool = SlotPool::new(2).unwrap();
    let first = TaskHandle::new(pool.acquire().await.unwrap());
    let second = TaskHandle::new(pool.acquire().await.unwrap());
    let start = tokio::time::Instant::now();
    let first_waits = first.defer_until(condition::file(&path), ENOUGH);
    let second_comes = async {
        tokio::time::sleep(ENOUGH / 2).await;
        assert!(!first.is_slot_held());
        std::fs::write(&path, "").unwrap();
        second.defer_until(condition::file(&path), ENOUGH).await
    };
    let (waited, came) = tokio::join!(first_waits, second_comes);
    waited.and(came).unwrap();
    assert_eq!(start.elapsed(), ENOUGH / 2);
}

#[tokio::test]
async fn an_error_reaches_all_who_wait_for_the_same() {
    let pool = SlotPool::new(20).unwrap();
    let waits = (0..20).map(async |_| {
        let handle = TaskHandle::new(pool.acquire().await.unwrap());
        handle.defer_until(condition::tcp("nowhere"), EVERY).await
    });
    for waited in join_all(waits).await {
        let error = TaskError::from(waited.unwrap_err());
        assert_eq!(error.to_string(), "\"nowhere\" is not of the form host:port");
        assert!(error.is_permanent());
    }
}

#[tokio::test]
async fn checks_stop_when_nobody_waits_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let pool = SlotPool::new(3).unwrap();
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let look = counting(&log, "false");
        let task = pool.spawn(async move |handle: TaskHandle| {
            handle.defer_until(look, EVERY).await?;
            Ok::<_, TaskError>(())
        });
        tasks.push(task.await.unwrap());
    }
    until(|| runs(&log) >= 3).await;
    tasks.truncate(1);
    let so_far = runs(&log);
    until(|| runs(&log) >= so_far + 3).await;
    drop(tasks);
    until(|| background_tasks() == 0).await;
    assert_eq!(pool.in_use(), 0);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_command_that_nobody_waits_for_any_more_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let pid = dir.path().join("pid");
    // The one that is looked for is a child of the command's own.
    let script =
        format!("sleep 1000 & echo $! > '{0}.new'; mv '{0}.new' '{0}'; wait", pid.display());
    let handle = handle().await;
    let wait =
        handle.defer_until(condition::command(Command::new("sh").args(["-c", &script])), EVERY);
    tokio::select! {
        _ = wait => panic!("it does not end"),
        () = until(|| pid.exists()) => {}
    }
    let process = format!("/proc/{}", std::fs::read_to_string(&pid).unwrap().trim());
    until(|| !Path::new(&process).exists()).await;
}

#[cfg(feature = "http")]
mod http {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// A server that answers the n-th request with the n-th of these, and then with the last.
    struct Server {
        url: String,
        asked: Arc<AtomicUsize>,
        task: tokio::task::JoinHandle<()>,
    }

    impl Drop for Server {
        fn drop(&mut self) {
            self.task.abort();
        }
    }

    async fn serve(answers: &'static [&'static str]) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/ready", listener.local_addr().unwrap());
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (mut request, mut part) = (Vec::new(), [0; 1024]);
                while !request.ends_with(b"\r\n\r\n") {
                    match stream.read(&mut part).await {
                        Ok(read) if read > 0 => request.extend_from_slice(&part[..read]),
                        _ => break,
                    }
                }
                assert!(request.starts_with(b"GET /"), "{}", String::from_utf8_lossy(&request));
                let nth = count.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1);
                let head = "content-length: 0\r\nconnection: close\r\n\r\n";
                let answer = format!("HTTP/1.1 {}\r\n{head}", answers[nth]);
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Server { url, asked, task }
    }

    #[tokio::test]
    async fn an_address_is_asked_until_it_answers_with_success() {
        let server = serve(&["503 Service Unavailable", "404 Not Found", "204 No Content"]).await;
        met(condition::http(&server.url)).await.unwrap();
        assert_eq!(server.asked.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn a_redirect_is_followed() {
        let server = serve(&["302 Found\r\nlocation: /elsewhere", "200 OK"]).await;
        met(condition::http(&server.url)).await.unwrap();
        assert_eq!(server.asked.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn no_answer_is_not_yet() {
        let (_socket, address) = nobody_listens();
        assert!(not_yet(condition::http(format!("http://{address}/"))).await);
    }

    #[tokio::test]
    async fn an_address_that_is_no_url_ends_the_wait() {
        for wrong in ["", "not a url", "/ready"] {
            let error = failure(condition::http(wrong)).await;
            let expected = format!("\"{wrong}\" is not a URL: ");
            assert!(error.to_string().starts_with(&expected), "{error}");
            assert!(error.is_permanent());
        }
        let error = failure(condition::http("ftp://example.org/")).await;
        let expected = "\"ftp://example.org/\" cannot be asked: ";
        assert!(error.to_string().starts_with(expected), "{error}");
        assert!(error.is_permanent());
    }

    #[tokio::test]
    async fn all_who_ask_the_same_ask_once() {
        let server = serve(&["503 Service Unavailable", "200 OK"]).await;
        let pool = SlotPool::new(50).unwrap();
        let waits = (0..50).map(async |_| {
            let handle = TaskHandle::new(pool.acquire().await.unwrap());
            handle.defer_until(condition::http(&server.url), EVERY).timeout(ENOUGH).await
        });
        for waited in join_all(waits).await {
            waited.unwrap();
        }
        assert_eq!(server.asked.load(Ordering::SeqCst), 2);
    }
}
