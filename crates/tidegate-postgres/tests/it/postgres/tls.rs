//! TLS to the server: its certificate is checked where the URL asks for that.

use super::open::TestRole;
use tidegate_postgres::{PostgresOpenError, PostgresStore};
use tidegate_testkit::{PostgresSchema, connect_to_postgres, postgres_tcp_address};

/// A server for tests that has a certificate, in a file; `None` if it has none.
async fn read_certificate(file: &std::path::Path) -> Option<()> {
    let client = connect_to_postgres().await;
    let has_tls = client.query_one("SHOW ssl", &[]).await.unwrap().get::<_, String>(0) == "on";
    if !has_tls {
        eprintln!("the server for tests has no TLS; nothing was tested");
        return None;
    }
    let read = "SELECT pg_read_file(current_setting('ssl_cert_file'))";
    let certificate: String = client.query_one(read, &[]).await.unwrap().get(0);
    std::fs::write(file, certificate).unwrap();
    Some(())
}

async fn is_encrypted(schema: &PostgresSchema) -> bool {
    let client = connect_to_postgres().await;
    let count = "SELECT count(*) > 0 AND bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                 WHERE application_name LIKE $1 || '%'";
    client.query_one(count, &[&schema.schema_name()]).await.unwrap().get(0)
}

#[tokio::test]
async fn certificate_is_checked_as_the_url_asks() {
    let schema = PostgresSchema::new();
    let file = std::env::temp_dir().join(format!("{}.crt", schema.schema_name()));
    if read_certificate(&file).await.is_none() {
        return;
    }
    let role = TestRole::create_role(&schema, "SUPERUSER").await;
    let server = role.server_url(super::open::PASSWORD).await;
    let with = |parameters: &str| schema.store_url_at(&format!("{server}?{parameters}"));
    let root = format!("sslrootcert={}", file.display());
    for mode in ["sslmode=require", &format!("sslmode=verify-full&{root}")] {
        let store = PostgresStore::open_store(&with(mode)).await.unwrap();
        assert!(is_encrypted(&schema).await, "{mode}");
        store.close_store().await;
    }
    // No authority has signed it.
    let Err(error) = PostgresStore::open_store(&with("sslmode=verify-full")).await else {
        panic!("a certificate without an authority was taken");
    };
    assert!(matches!(error, PostgresOpenError::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains("certificate"), "{error}");
    // For another name, only the strictest mode refuses it.
    let other_name = |mode: &str| {
        let address = postgres_tcp_address();
        let (host, port) = address.rsplit_once(':').unwrap();
        let url = with(&format!("sslmode={mode}&{root}&hostaddr={host}"));
        url.replace(&format!("@{address}/"), &format!("@other.example:{port}/"))
    };
    PostgresStore::open_store(&other_name("verify-ca")).await.unwrap().close_store().await;
    let refused = PostgresStore::open_store(&other_name("verify-full")).await;
    assert!(matches!(refused, Err(PostgresOpenError::Unreachable { .. })), "{refused:?}");
    role.drop_role().await;
    std::fs::remove_file(&file).unwrap();
}
