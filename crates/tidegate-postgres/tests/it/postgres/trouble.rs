//! Trouble at run time: a request fails in words, nothing is lost, and work goes on afterwards.

use super::open::{PASSWORD, TestRole};
use super::proxy::TestProxy;
use super::support::{end_connections, enlist, open_new, submit_request};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidegate_core::RunId;
use tidegate_core::store::{Request, Store, StoreError, Wakeup};
use tidegate_postgres::PostgresStore;
use tidegate_testkit::{PostgresSchema, connect_to_postgres, postgres_tcp_address};

#[tokio::test]
async fn exhausted_pool_is_an_error_that_names_the_parameter() {
    let (schema, store) = open_new().await;
    let url = format!("{}&pool=1&pool_timeout=50ms", schema.store_url());
    let narrow = Arc::new(PostgresStore::open_store(&url).await.unwrap());
    let client = connect_to_postgres().await;
    let lock = format!("SELECT pg_advisory_lock(id) FROM {}.store", schema.schema_name());
    client.batch_execute(&lock).await.unwrap();
    // The only connection waits for the lock of the store.
    let waiting = tokio::spawn({
        let narrow = narrow.clone();
        async move { narrow.request(submit_request(1)).await }
    });
    wait_for_blocked(&client).await;
    let refused = narrow.request(submit_request(2)).await;
    let Err(StoreError::Failed(error)) = refused else { panic!("{refused:?}") };
    assert!(error.to_string().contains("pool=NUMBER"), "{error}");
    client.batch_execute("SELECT pg_advisory_unlock_all()").await.unwrap();
    waiting.await.unwrap().unwrap();
    narrow.request(submit_request(2)).await.unwrap();
    narrow.close_store().await;
    store.close_store().await;
}

/// Waits until another connection waits for a lock of this one.
async fn wait_for_blocked(client: &tokio_postgres::Client) {
    let blocked = "SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = \
                   ANY(pg_blocking_pids(pid))";
    while client.query_one(blocked, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn requests_go_on_after_the_server_has_ended_all_connections() {
    let (schema, store) = open_new().await;
    let client = connect_to_postgres().await;
    store.request(submit_request(1)).await.unwrap();
    assert!(end_connections(&client, &schema, None).await >= 1);
    request_until_done(&store, submit_request(2)).await;
    for run in [1, 2] {
        assert!(store.run(RunId::from_u128(run)).await.unwrap().is_some(), "run {run}");
    }
    store.close_store().await;
}

/// Hands a request in until it is answered, as a worker does.
async fn request_until_done(store: &PostgresStore, request: Arc<Request>) {
    let mut request = request;
    loop {
        match store.request(request.clone()).await {
            Ok(_) => return,
            Err(StoreError::Failed(_)) => {}
            Err(StoreError::Unknown(_)) => Arc::make_mut(&mut request).again = true,
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn store_whose_tables_were_dropped_is_unusable_and_says_so() {
    let (schema, store) = open_new().await;
    let client = connect_to_postgres().await;
    let drop_schema = format!("DROP SCHEMA {} CASCADE", schema.schema_name());
    client.batch_execute(&drop_schema).await.unwrap();
    let refused = store.request(submit_request(1)).await;
    let Err(StoreError::Unusable(error)) = refused else { panic!("{refused:?}") };
    let text = error.to_string();
    assert!(text.contains(schema.schema_name()) && text.contains("restore a backup"), "{text}");
    store.close_store().await;
}

#[tokio::test]
async fn request_whose_answer_was_lost_can_be_handed_in_again() {
    let schema = PostgresSchema::new();
    let role = TestRole::create_role(&schema, "SUPERUSER").await;
    let proxy = TestProxy::default();
    let address = proxy.start_proxy(postgres_tcp_address()).await;
    let server = role.server_url(PASSWORD).await.replace(&postgres_tcp_address(), &address);
    let url = schema.store_url_at(&format!("{server}?sslmode=disable"));
    let store = PostgresStore::open_store(&url).await.unwrap();
    // Plans and numbers are stored by transactions of their own.
    store.request(submit_request(1)).await.unwrap();
    proxy.loses_commit.store(true, Ordering::SeqCst);
    let mut request = submit_request(2);
    let lost = store.request(request.clone()).await;
    assert!(matches!(lost, Err(StoreError::Unknown(_))), "{lost:?}");
    assert!(store.run(RunId::from_u128(2)).await.unwrap().is_some());
    Arc::make_mut(&mut request).again = true;
    let reply = store.request(request).await.unwrap();
    assert_eq!(reply.submits.len(), 1);
    assert_eq!(store.counts().await.unwrap().ready, 2);
    store.close_store().await;
    role.drop_role().await;
}

/// A server of its own, which a test may restart.
struct OwnServer {
    directory: PathBuf,
    url: String,
}

fn run_tool(command: &str, directory: &Path) -> std::process::Output {
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/postgres");
    Command::new(tool).arg(command).arg(directory).output().unwrap()
}

impl OwnServer {
    fn start_server() -> Self {
        let name = format!("tidegate-own-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let started = run_tool("start", &directory);
        assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
        let url = String::from_utf8(started.stdout).unwrap().trim().to_owned();
        OwnServer { directory, url }
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        run_tool("stop", &self.directory);
    }
}

#[tokio::test]
async fn crash_of_the_server_loses_nothing_and_kills_no_worker() {
    let server = OwnServer::start_server();
    let store = PostgresStore::open_store(&server.url).await.unwrap();
    let worker = enlist(&store, "survivor").await;
    store.request(submit_request(1)).await.unwrap();
    let restarted = run_tool("restart", &server.directory);
    assert!(restarted.status.success(), "{}", String::from_utf8_lossy(&restarted.stderr));
    request_until_done(&store, submit_request(2)).await;
    for run in [1, 2] {
        assert!(store.run(RunId::from_u128(run)).await.unwrap().is_some(), "run {run}");
    }
    assert_eq!(store.dead().await.unwrap(), []);
    assert_eq!(store.workers().await.unwrap()[0].id, worker);
    // The listener is back, and reports everything as changed.
    let mut reasons = Wakeup::default();
    while reasons != (Wakeup { is_notified: true, has_ready: true, has_ended: true }) {
        reasons.add_reasons(store.wait_for_wakeup(worker).await.unwrap());
    }
    store.close_store().await;
}
