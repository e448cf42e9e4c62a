//! A web application that takes orders and has tidegate do them.
//!
//! Run it with `cargo run --release --example web`. `POST /orders` submits a run, once for each
//! `Idempotency-Key`; `GET /orders/{id}` says how it stands and what came of it. The engine is the
//! state of the application, with its runs in a SQLite file. The example then talks to itself over a
//! port of this machine, and stops the server first and the engine after it.

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::error::Error;
use std::fmt::Display;
use std::net::SocketAddr;
use std::time::Duration;
use tidegate::engine::RunError;
use tidegate::error::SubmitError;
use tidegate::{Context, Engine, RunId, TaskError, TaskHandle, Workflow, task};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

#[derive(Serialize, Deserialize)]
struct Order {
    item: String,
    count: u64,
}

#[task(retries = 3)]
async fn charge(context: &mut Context<Order>, handle: &TaskHandle) -> Result<u64, TaskError> {
    // The same on every entry: a bank that is given it charges once.
    let _key = handle.task_execution_id();
    Ok(context.input().count * 5)
}

#[task(after = [charge])]
async fn ship(context: &mut Context<Order>) -> Result<String, TaskError> {
    let (order, price) = (context.input(), context.output::<u64>(charge::ID)?);
    Ok(format!("{} {} for {price} euros", order.count, order.item))
}

type Answer = Result<(StatusCode, Json<Value>), (StatusCode, String)>;

fn refuse(status: StatusCode, why: impl Display) -> (StatusCode, String) {
    (status, why.to_string())
}

async fn take(engine: State<Engine>, headers: HeaderMap, Json(order): Json<Order>) -> Answer {
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
    let no_key = || refuse(StatusCode::BAD_REQUEST, "the header Idempotency-Key is missing");
    // Once this is answered, the order survives any crash.
    let submitted = engine.submit("order", order).key(key.ok_or_else(no_key)?).await;
    let run = submitted.map_err(|error| match error {
        SubmitError::Refused(_) => refuse(StatusCode::CONFLICT, error),
        SubmitError::Closed => refuse(StatusCode::SERVICE_UNAVAILABLE, error),
        _ => refuse(StatusCode::INTERNAL_SERVER_ERROR, error),
    })?;
    let status = if run.existed() { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, Json(json!({ "id": run.id().to_string() }))))
}

async fn look(engine: State<Engine>, Path(id): Path<String>) -> Answer {
    let broken = |error: &dyn Display| refuse(StatusCode::INTERNAL_SERVER_ERROR, error);
    let id: RunId = id.parse().map_err(|error| refuse(StatusCode::BAD_REQUEST, error))?;
    let run = engine.run(id).await.map_err(|error| match error {
        RunError::Unknown(_) => refuse(StatusCode::NOT_FOUND, error),
        _ => broken(&error),
    })?;
    let outcome = run.status().await.map_err(|error| broken(&error))?.outcome();
    let answer = match (outcome, run.output::<String>(ship::ID).await) {
        (None, _) => json!({ "state": "open" }),
        (_, Ok(shipped)) => json!({ "state": "shipped", "what": shipped }),
        (_, Err(RunError::Output(why))) => json!({ "state": "failed", "why": why.to_string() }),
        (_, Err(error)) => return Err(broken(&error)),
    };
    Ok((StatusCode::OK, Json(answer)))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let order = Workflow::builder("order").task(charge::task()).task(ship::task()).build()?;
    let store = format!("sqlite:{}", folder.path().join("orders.db").display());
    let engine = Engine::builder(store).workflow(order).start().await?;

    let app = Router::new().route("/orders", post(take)).route("/orders/{id}", get(look));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    // A real one would stop at a signal, by `tokio::signal`.
    let (stop, stopped) = oneshot::channel::<()>();
    let server = axum::serve(listener, app.with_state(engine.clone()))
        .with_graceful_shutdown(async { stopped.await.unwrap_or_default() });
    let server = tokio::spawn(server.into_future());

    visit(address).await?;

    // The door first: whoever is inside is served. Then the work: what is not done is stored.
    stop.send(()).map_err(|()| "the server has stopped by itself")?;
    server.await??;
    let report = engine.shutdown(Duration::from_secs(10)).await;
    println!("both have stopped; {} tasks were handed back", report.handed_back.len());
    Ok(())
}

/// A customer, who is not sure that the order has arrived.
async fn visit(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let key = "Idempotency-Key: monday\r\n";
    let (six, seven) = (r#"{"item":"cups","count":6}"#, r#"{"item":"cups","count":7}"#);
    let (taken, first) = call(address, "POST /orders", key, six).await?;
    let (again, second) = call(address, "POST /orders", key, six).await?;
    assert_eq!((taken, again), (202, 200));
    assert_eq!(first, second, "one key, one order");
    assert_eq!(call(address, "POST /orders", key, seven).await?.0, 409);
    assert_eq!(call(address, "POST /orders", "", seven).await?.0, 400);

    let first: Value = serde_json::from_str(&first)?;
    let order = format!("GET /orders/{}", first["id"].as_str().ok_or("it has an id")?);
    let mut answer = call(address, &order, "", "").await?;
    while answer.1.contains("open") {
        tokio::time::sleep(Duration::from_millis(5)).await;
        answer = call(address, &order, "", "").await?;
    }
    let answer: (u16, Value) = (answer.0, serde_json::from_str(&answer.1)?);
    assert_eq!(answer, (200, json!({ "state": "shipped", "what": "6 cups for 30 euros" })));
    Ok(())
}

/// One request over HTTP/1.1; gives the status and the body of the answer.
async fn call(
    address: SocketAddr,
    what: &str,
    headers: &str,
    body: &str,
) -> Result<(u16, String), Box<dyn Error>> {
    let request = format!(
        "{what} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("an answer has a head")?;
    let status = head.split(' ').nth(1).ok_or("an answer has a status")?;
    println!("{what}\n  {status} {body}");
    Ok((status.parse()?, body.to_owned()))
}
