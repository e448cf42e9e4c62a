//! Servers that cannot be used: the error names the reason, and the change that would help.

use super::proxy::TestProxy;
use std::sync::atomic::Ordering;
use tidegate_postgres::{PostgresOpenError, PostgresStore};
use tidegate_testkit::{
    PostgresSchema, connect_to_postgres, postgres_server, postgres_tcp_address,
};
use tokio_postgres::Client;

/// A role that is dropped at the end of the test.
pub(super) struct TestRole {
    name: String,
    client: Client,
}

pub(super) const PASSWORD: &str = "a-password-for-tests";

impl TestRole {
    pub(super) async fn create_role(schema: &PostgresSchema, options: &str) -> Self {
        let client = connect_to_postgres().await;
        let name = format!("role_{}", schema.schema_name());
        let create = format!("CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}' {options}");
        client.batch_execute(&create).await.unwrap();
        TestRole { name, client }
    }

    /// The server over TCP, as this role with this password.
    pub(super) async fn server_url(&self, password: &str) -> String {
        let database = self.client.query_one("SELECT current_database()", &[]).await.unwrap();
        let database: String = database.get(0);
        format!("postgres://{}:{password}@{}/{database}", self.name, postgres_tcp_address())
    }

    pub(super) async fn drop_role(self) {
        let name = &self.name;
        let drop_role = format!("DROP OWNED BY {name} CASCADE; DROP ROLE {name}");
        self.client.batch_execute(&drop_role).await.unwrap();
    }
}

async fn refusal_of(url: &str) -> PostgresOpenError {
    match PostgresStore::open_store(url).await {
        Ok(_) => panic!("{url} was opened"),
        Err(error) => error,
    }
}

fn assert_names(error: &PostgresOpenError, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "\"{part}\" is not in: {text}");
    }
    assert!(!text.contains(PASSWORD), "{text}");
}

#[tokio::test]
async fn invalid_url_is_refused_before_any_connection() {
    let error = refusal_of("postgres://ada@one/jobs?pool=none").await;
    assert!(matches!(error, PostgresOpenError::InvalidUrl { .. }), "{error:?}");
    assert_names(&error, &["pool", "\"none\"", "1 to 1000"]);
}

#[tokio::test]
async fn unreachable_server_is_named_with_its_port() {
    // No server listens on port 1.
    let error = refusal_of("postgres://ada:a-password-for-tests@127.0.0.1:1/jobs").await;
    assert!(matches!(error, PostgresOpenError::Unreachable { .. }), "{error:?}");
    let parts = ["postgres://ada@127.0.0.1:1/jobs", "refused", "check host and port"];
    assert_names(&error, &parts);
}

#[tokio::test]
async fn unknown_host_is_named() {
    let error = refusal_of("postgres://ada@no-such-host.invalid/jobs").await;
    assert!(matches!(error, PostgresOpenError::Unreachable { .. }), "{error:?}");
    assert_names(&error, &["no-such-host.invalid", "check host and port"]);
}

#[tokio::test]
async fn wrong_password_is_named_with_the_user() {
    let schema = PostgresSchema::new();
    let role = TestRole::create_role(&schema, "").await;
    let url = role.server_url("another-password").await;
    let error = refusal_of(&url).await;
    assert!(matches!(error, PostgresOpenError::WrongPassword { .. }), "{error:?}");
    assert_names(&error, &[&role.name, "password authentication failed", "check the user"]);
    assert!(!error.to_string().contains("another-password"), "{error}");
    role.drop_role().await;
}

#[tokio::test]
async fn missing_database_is_named() {
    let server = postgres_server();
    let (base, _) = server.rsplit_once('/').unwrap();
    let error = refusal_of(&format!("{base}/no_such_database")).await;
    assert!(matches!(error, PostgresOpenError::NoDatabase { .. }), "{error:?}");
    assert_names(&error, &["\"no_such_database\" does not exist", "create it first"]);
}

#[tokio::test]
async fn role_without_the_right_to_create_is_told_the_rights_it_needs() {
    let schema = PostgresSchema::new();
    let role = TestRole::create_role(&schema, "").await;
    let url = schema.store_url_at(&role.server_url(PASSWORD).await);
    let error = refusal_of(&url).await;
    assert!(matches!(error, PostgresOpenError::NoRights { .. }), "{error:?}");
    assert_names(&error, &["permission denied for database", "CREATE on the database"]);
    role.drop_role().await;
}

#[tokio::test]
async fn role_without_rights_on_tables_is_told_which() {
    let schema = PostgresSchema::new();
    PostgresStore::open_store(&schema.store_url()).await.unwrap().close_store().await;
    let role = TestRole::create_role(&schema, "").await;
    let (name, role_name) = (schema.schema_name(), &role.name);
    let grant = format!(
        "GRANT USAGE ON SCHEMA {name} TO {role_name}; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {name} TO {role_name}; \
         GRANT USAGE ON ALL SEQUENCES IN SCHEMA {name} TO {role_name}; \
         REVOKE UPDATE ON {name}.wait, {name}.task FROM {role_name}"
    );
    role.client.batch_execute(&grant).await.unwrap();
    let url = schema.store_url_at(&role.server_url(PASSWORD).await);
    let error = refusal_of(&url).await;
    assert!(matches!(error, PostgresOpenError::NoRights { .. }), "{error:?}");
    assert_names(&error, &["may not read and write task, wait;", "SELECT, INSERT, UPDATE"]);
    // With all of them it need not own the tables.
    let grant = format!("GRANT UPDATE ON {name}.wait, {name}.task TO {role_name}");
    role.client.batch_execute(&grant).await.unwrap();
    PostgresStore::open_store(&url).await.unwrap().close_store().await;
    role.drop_role().await;
}

#[tokio::test]
async fn server_that_takes_no_writes_is_refused() {
    let schema = PostgresSchema::new();
    let role = TestRole::create_role(&schema, "").await;
    let read_only = format!("ALTER ROLE {} SET default_transaction_read_only = on", role.name);
    role.client.batch_execute(&read_only).await.unwrap();
    let error = refusal_of(&schema.store_url_at(&role.server_url(PASSWORD).await)).await;
    assert!(matches!(error, PostgresOpenError::ReadOnly { .. }), "{error:?}");
    assert_names(&error, &["does not take writes", "target_session_attrs=read-write"]);
    role.drop_role().await;
}

#[tokio::test]
async fn database_that_is_not_in_utf_8_is_refused() {
    let (schema, client) = (PostgresSchema::new(), connect_to_postgres().await);
    let database = format!("database_{}", schema.schema_name());
    let version = client.query_one("SELECT current_setting('server_version_num')::int4", &[]).await;
    let has_providers = version.unwrap().get::<_, i32>(0) >= 150_000;
    let provider = if has_providers { "LOCALE_PROVIDER libc" } else { "" };
    let create = format!(
        "CREATE DATABASE {database} TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' \
         {provider}"
    );
    client.batch_execute(&create).await.unwrap();
    let server = postgres_server();
    let (base, _) = server.rsplit_once('/').unwrap();
    let error = refusal_of(&format!("{base}/{database}")).await;
    client.batch_execute(&format!("DROP DATABASE {database} WITH (FORCE)")).await.unwrap();
    assert!(matches!(error, PostgresOpenError::NotUtf8 { .. }), "{error:?}");
    assert_names(&error, &[&database, "LATIN1", "ENCODING 'UTF8'"]);
}

#[tokio::test]
async fn newer_schema_is_refused_with_both_versions() {
    let (schema, client) = (PostgresSchema::new(), connect_to_postgres().await);
    PostgresStore::open_store(&schema.store_url()).await.unwrap().close_store().await;
    let name = schema.schema_name();
    let note = format!("INSERT INTO {name}.tidegate_migration (number) VALUES (99)");
    client.batch_execute(&note).await.unwrap();
    let error = refusal_of(&schema.store_url()).await;
    let is_newer = matches!(error, PostgresOpenError::Newer { found: 99, known: 1.., .. });
    assert!(is_newer, "{error:?}");
    assert_names(&error, &[name, "schema version 99", "knows versions up to"]);
}

#[tokio::test]
async fn schema_of_an_unfinished_version_is_refused_with_both_versions() {
    let (schema, client) = (PostgresSchema::new(), connect_to_postgres().await);
    PostgresStore::open_store(&schema.store_url()).await.unwrap().close_store().await;
    let name = schema.schema_name();
    let note = format!("UPDATE {name}.tidegate_migration SET number = 1");
    client.batch_execute(&note).await.unwrap();
    let error = refusal_of(&schema.store_url()).await;
    assert!(matches!(error, PostgresOpenError::Unfinished { found: 1, .. }), "{error:?}");
    assert_names(&error, &[name, "schema version 1", "needs version 3", "schema=NAME"]);
}

#[tokio::test]
async fn schema_of_another_program_is_left_alone() {
    let (schema, client) = (PostgresSchema::new(), connect_to_postgres().await);
    let name = schema.schema_name();
    let create = format!("CREATE SCHEMA {name}; CREATE TABLE {name}.task (id int)");
    client.batch_execute(&create).await.unwrap();
    let error = refusal_of(&schema.store_url()).await;
    assert!(matches!(error, PostgresOpenError::Foreign { .. }), "{error:?}");
    assert_names(&error, &[name, "tables of another program", "schema=NAME"]);
}

#[tokio::test]
async fn empty_schema_that_was_made_for_the_store_is_used() {
    let (schema, client) = (PostgresSchema::new(), connect_to_postgres().await);
    let role = TestRole::create_role(&schema, "").await;
    let (name, role_name) = (schema.schema_name(), &role.name);
    let create = format!("CREATE SCHEMA {name} AUTHORIZATION {role_name}");
    client.batch_execute(&create).await.unwrap();
    let url = schema.store_url_at(&role.server_url(PASSWORD).await);
    PostgresStore::open_store(&url).await.unwrap().close_store().await;
    role.drop_role().await;
}

#[tokio::test]
async fn pooler_in_transaction_mode_is_found() {
    let schema = PostgresSchema::new();
    let role = TestRole::create_role(&schema, "SUPERUSER").await;
    let direct = role.server_url(PASSWORD).await;
    let proxy = TestProxy::default();
    proxy.loses_notifications.store(true, Ordering::SeqCst);
    let proxy = proxy.start_proxy(postgres_tcp_address()).await;
    let url = direct.replace(&postgres_tcp_address(), &proxy);
    let error = refusal_of(&schema.store_url_at(&format!("{url}?sslmode=disable"))).await;
    assert!(matches!(error, PostgresOpenError::Pooler { .. }), "{error:?}");
    assert_names(&error, &[&proxy, "pooler", "session mode"]);
    // Without it the same role can.
    PostgresStore::open_store(&schema.store_url_at(&direct)).await.unwrap().close_store().await;
    role.drop_role().await;
}

#[tokio::test]
async fn new_schema_is_made_once_by_processes_that_start_together() {
    let (schema, client) = (PostgresSchema::new(), connect_to_postgres().await);
    let url = schema.store_url();
    let opens: Vec<_> = (0..4)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move {
                PostgresStore::open_store(&url).await.unwrap().close_store().await
            })
        })
        .collect();
    for open in opens {
        open.await.unwrap();
    }
    let count = format!("SELECT count(*) FROM {}.store", schema.schema_name());
    assert_eq!(client.query_one(&count, &[]).await.unwrap().get::<_, i64>(0), 1);
}

#[tokio::test]
async fn record_numbers_grow_on_after_a_move_to_another_server() {
    let (schema, client) = (PostgresSchema::new(), connect_to_postgres().await);
    PostgresStore::open_store(&schema.store_url()).await.unwrap().close_store().await;
    // The last record of a server that had committed far more transactions.
    let name = schema.schema_name();
    let record = i64::from(i32::MAX) << 20;
    let insert = format!(
        "INSERT INTO {name}.record (number, at, run, idx, kind, attempt, entry, active) \
         VALUES ({record}, 0, 1, 0, 0, 0, 0, 0)"
    );
    client.batch_execute(&insert).await.unwrap();
    PostgresStore::open_store(&schema.store_url()).await.unwrap().close_store().await;
    let next =
        format!("SELECT (pg_current_xact_id()::text::int8 + record_base) << 20 FROM {name}.store");
    let next: i64 = client.query_one(&next, &[]).await.unwrap().get(0);
    assert!(next > record, "{next}");
}
