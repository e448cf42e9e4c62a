//! The threads that read, on connections that cannot write.
//!
//! Each read is one transaction, or several where it is long, so that none holds a snapshot for more
//! than a moment: while one is held, the log cannot begin anew.

use crate::error::{Error, catch_panic};
use crate::loader::RowLoader;
use crate::open::Place;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use tidegate_core::store::StoreError;
use tokio::sync::oneshot;

/// Threads that read: one may be busy with a long list while another looks up a run.
const THREADS: usize = 2;

type Read = Box<dyn FnOnce(Result<&mut RowLoader<'_>, Error>) + Send>;

/// The callers' end of the threads, which end when it is dropped.
#[derive(Debug)]
pub(crate) struct Readers {
    threads: Mutex<Option<Threads>>,
    place: Place,
}

#[derive(Debug)]
struct Threads {
    inbox: Sender<Read>,
    /// Says that all of them have ended.
    ended: tokio::sync::mpsc::Receiver<()>,
}

impl Readers {
    /// Starts the threads; each opens its connection when it is first needed.
    pub(crate) fn start(place: Place) -> Result<Self, Error> {
        let (inbox, reads) = mpsc::channel();
        let (alive, ended) = tokio::sync::mpsc::channel(1);
        let reads = Arc::new(Mutex::new(reads));
        for number in 1..=THREADS {
            let thread = thread::Builder::new().name(format!("tidegate-sqlite-reader-{number}"));
            let (place, reads, alive) = (place.clone(), reads.clone(), alive.clone());
            let serve = move || {
                serve(&place, &reads);
                drop(alive);
            };
            thread.spawn(serve).map_err(Error::Thread)?;
        }
        Ok(Readers { threads: Mutex::new(Some(Threads { inbox, ended })), place })
    }

    /// Reads something.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut RowLoader<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        let read = move |loader: Result<&mut RowLoader<'_>, Error>| {
            let found = loader.and_then(|loader| {
                catch_panic(|| read(loader)).inspect_err(|_| loader.forget_everything())
            });
            // The caller may have gone away.
            let _ = answer.send(found);
        };
        let at = |error: Error| error.at(&self.place.path);
        self.send(Box::new(read)).map_err(at)?;
        answered.await.map_err(|_| at(Error::Closed))?.map_err(at)
    }

    fn send(&self, read: Read) -> Result<(), Error> {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let threads = threads.as_ref().ok_or(Error::Closed)?;
        threads.inbox.send(read).map_err(|_| Error::Closed)
    }

    /// Ends the threads after what is queued, and waits for that.
    pub(crate) async fn close(&self) {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Threads { inbox, mut ended }) = threads {
            drop(inbox);
            // Nobody sends anything: this returns when the last thread has ended.
            let _ = ended.recv().await;
        }
    }
}

/// Serves reads until there are no more. A connection is kept as long as the file stays in its place.
fn serve(place: &Place, reads: &Mutex<Receiver<Read>>) {
    while let Some(read) = next_read(reads) {
        let opened = place.check().and_then(|()| Ok(place.open_reader()?));
        let connection = match opened {
            Ok(connection) => connection,
            Err(error) => {
                read(Err(error));
                continue;
            }
        };
        match RowLoader::new(&connection, place) {
            Ok(loader) => serve_connection(loader, read, reads),
            Err(error) => read(Err(error.into())),
        }
    }
}

/// Serves this read and the next ones, until the file is not in its place or there are no more.
fn serve_connection(mut loader: RowLoader<'_>, first: Read, reads: &Mutex<Receiver<Read>>) {
    first(Ok(&mut loader));
    while let Some(read) = next_read(reads) {
        if let Err(error) = loader.place.check() {
            return read(Err(error));
        }
        read(Ok(&mut loader));
    }
}

fn next_read(reads: &Mutex<Receiver<Read>>) -> Option<Read> {
    reads.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}
