//! A proxy before the server that loses some of its messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// The type of a message with a notification.
const NOTIFICATION: u8 = b'A';

/// The type of a message that ends a statement.
const COMPLETE: u8 = b'C';

/// A proxy, and the messages that it loses at the moment.
#[derive(Debug, Clone, Default)]
pub(super) struct TestProxy {
    /// Notifications, as a pooler in transaction mode does.
    pub(super) loses_notifications: Arc<AtomicBool>,
    /// The answer to the next COMMIT, together with its connection.
    pub(super) loses_commit: Arc<AtomicBool>,
}

impl TestProxy {
    /// Starts it before the server at this address; its own address.
    pub(super) async fn start_proxy(&self, server: String) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let proxy = self.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let proxy = proxy.clone();
                tokio::spawn(async move {
                    // It ends with the first side that ends, and closes both.
                    tokio::select! {
                        () = forward_bytes(from_client, to_server) => {}
                        _ = proxy.forward_messages(from_server, to_client) => {}
                    }
                });
            }
        });
        address
    }

    /// Forwards the messages of the server: a byte for the type, four for the length.
    async fn forward_messages(self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> Option<()> {
        loop {
            let kind = from.read_u8().await.ok()?;
            let length = from.read_u32().await.ok()?;
            let mut body = vec![0; usize::try_from(length).ok()?.checked_sub(4)?];
            from.read_exact(&mut body).await.ok()?;
            if kind == NOTIFICATION && self.loses_notifications.load(Ordering::SeqCst) {
                continue;
            }
            let is_commit = kind == COMPLETE && body == b"COMMIT\0";
            if is_commit && self.loses_commit.swap(false, Ordering::SeqCst) {
                return None;
            }
            to.write_u8(kind).await.ok()?;
            to.write_u32(length).await.ok()?;
            to.write_all(&body).await.ok()?;
        }
    }
}

async fn forward_bytes(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    // It ends with either side.
    let _ = tokio::io::copy(&mut from, &mut to).await;
}
