//! Two hundred agents on four slots, each calling a slow, rate-limited service.
//!
//! Run it with `cargo run --release --example agents`. The same agents are run twice: once they
//! give their slot back while they wait for the service, once they keep it, as in most queues. The
//! service is a real one, on a port of this machine.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tidegate::{Batch, TaskError, TaskHandle};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

const AGENTS: usize = 200;
const SLOTS: u32 = 4;
/// How long the service takes for one answer.
const ANSWER: Duration = Duration::from_millis(100);
/// How many questions the service takes in `PERIOD`; it sends further ones away.
const RATE: usize = 50;
const PERIOD: Duration = Duration::from_millis(100);
const EVERY: Duration = Duration::from_millis(10);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let service = Service::start().await?;
    println!("{AGENTS} agents on {SLOTS} slots; the service takes {ANSWER:?} for an answer");
    println!("and takes {RATE} questions in {PERIOD:?}.\n");
    let released = run(&service, true).await?;
    println!("slots released while waiting: {released:>8.2?}");
    let held = run(&service, false).await?;
    println!("slots held while waiting:     {held:>8.2?}");
    println!("\n{:.1} times as fast.", held.as_secs_f64() / released.as_secs_f64());
    Ok(())
}

/// Runs all agents; says how long it took.
async fn run(service: &Service, release: bool) -> Result<Duration, Box<dyn std::error::Error>> {
    let began = Instant::now();
    let agents = (0..AGENTS).map(|n| {
        let service = service.clone();
        let agent = async move |handle: TaskHandle| agent(n, service, release, handle).await;
        (format!("agent {n}"), agent)
    });
    let results = Batch::new().parallel_limit(SLOTS).run_all(agents.collect::<Vec<_>>()).await?;
    if let Some(failed) = results.failed.first() {
        return Err(format!("{} failed: {:?}", failed.name, failed.error).into());
    }
    let right = results.succeeded.iter().filter(|result| result.output == Some(result.index * 2));
    assert_eq!(right.count(), AGENTS, "every agent has its own answer");
    Ok(began.elapsed())
}

/// One agent: asks, waits for the answer, and returns it.
async fn agent(
    n: usize,
    service: Service,
    release: bool,
    handle: TaskHandle,
) -> Result<usize, TaskError> {
    let (service, question) = (&service, n.to_string());
    let (ask, look) = (format!("ask {question}"), format!("look {question}"));
    let taken = || async { Ok::<_, TaskError>(service.call(&ask).await? != "busy") };
    let ready = || async { Ok::<_, TaskError>(service.call(&look).await? != "not yet") };
    if release {
        handle.defer_until(taken, EVERY).jitter(0.2).named("a place at the service").await?;
        handle.sleep(ANSWER).await?;
        handle.defer_until(ready, EVERY).jitter(0.2).named("the answer").await?;
    } else {
        while !taken().await? {
            tokio::time::sleep(EVERY).await;
        }
        tokio::time::sleep(ANSWER).await;
        while !ready().await? {
            tokio::time::sleep(EVERY).await;
        }
    }
    Ok(service.call(&format!("take {question}")).await?.parse()?)
}

/// A service that doubles numbers, slowly, and takes only so many questions at a time.
#[derive(Clone)]
struct Service {
    address: std::net::SocketAddr,
}

impl Service {
    async fn start() -> std::io::Result<Service> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let questions = Arc::new(Mutex::new(Questions::default()));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, questions.clone()));
            }
        });
        Ok(Service { address })
    }

    async fn call(&self, request: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.address).await?;
        stream.write_all(format!("{request}\n").as_bytes()).await?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).await?;
        Ok(answer.trim_end().to_owned())
    }
}

/// When each question was asked, and when the last ones were.
#[derive(Default)]
struct Questions {
    asked: HashMap<usize, Instant>,
    lately: VecDeque<Instant>,
}

impl Questions {
    fn answer(&mut self, verb: &str, number: usize) -> String {
        let now = Instant::now();
        while self.lately.front().is_some_and(|&then| now - then > PERIOD) {
            self.lately.pop_front();
        }
        match verb {
            "ask" if self.lately.len() >= RATE => "busy".to_owned(),
            "ask" => {
                self.lately.push_back(now);
                self.asked.insert(number, now);
                "taken".to_owned()
            }
            "take" => {
                self.asked.remove(&number);
                (number * 2).to_string()
            }
            _ => match self.asked.get(&number) {
                Some(&asked) if now - asked >= ANSWER => "ready".to_owned(),
                _ => "not yet".to_owned(),
            },
        }
    }
}

/// Answers one call: `ask N`, `look N` or `take N`.
async fn serve(stream: TcpStream, questions: Arc<Mutex<Questions>>) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut request = String::new();
    stream.read_line(&mut request).await?;
    let (verb, number) = request.trim_end().split_once(' ').unwrap_or_default();
    let number = number.parse().unwrap_or_default();
    let answer = questions.lock().expect("no call panics").answer(verb, number);
    stream.get_mut().write_all(format!("{answer}\n").as_bytes()).await
}
