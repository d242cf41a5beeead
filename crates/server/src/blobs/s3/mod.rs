//! Blobs in a bucket of S3, or of a service that speaks its protocol.
//!
//! - [`config`]: the bucket and its options. [`client`]: requests and their errors. [`copies`]: local copies of bundles.
//!
//! The names are those of a directory, `ab/cdef…`: a tool that copies files moves blobs from one to the other. An object is
//! durable when S3 has answered, so each write is. An upload that gets no answer is repeated: the same name always has the
//! same content.

mod client;
mod config;
mod copies;

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload, WriteMultipart};

use crate::private_files::create_private_dir;

use super::directory::{FileReader, HEAD, YOUNG};
use super::is_digest;
use super::store::{BlobReader, BlobStore, Note, PendingBlob, UnfinishedFiles, hash_reader};

pub(super) use client::S3Error;
use client::{S3Client, is_missing};
pub use config::{BlobPlace, BlobPlaceError, S3Place, S3Timing};
use copies::LocalCopies;

/// Size of a part of a large blob, up and down. S3 requires at least 5 MiB.
const PART: usize = 8 * 1024 * 1024;
/// Parts of one blob that are transferred at the same time. Bounds the memory of a transfer.
const PARTS_AT_ONCE: usize = 3;
/// Attempts to read a blob whose content does not match its digest, and to upload a large one.
const ATTEMPTS: usize = 3;
/// Objects without content that say when a blob was renewed: S3 has no way to make an object young again.
const RENEWED: &str = ".renewed";

#[derive(Debug)]
pub(super) struct S3Store {
    client: Arc<S3Client>,
    copies: Arc<LocalCopies>,
}

impl S3Store {
    /// Opens a bucket. The first request tells whether it can be used.
    pub(super) fn open(place: S3Place) -> io::Result<Self> {
        create_private_dir(&place.local)?;
        let copies = Arc::new(LocalCopies::new(&place.local));
        Ok(Self { client: Arc::new(S3Client::new(place)?), copies })
    }

    fn path(&self, digest: &str) -> Path {
        let (head, tail) = digest.split_at_checked(HEAD).unwrap_or((digest, ""));
        self.client.path(&format!("{head}/{tail}"))
    }

    fn renewal(&self, digest: &str) -> Path {
        self.client.path(&format!("{RENEWED}/{digest}"))
    }

    fn put(&self, path: Path, content: Bytes) -> io::Result<()> {
        let (store, to) = (self.client.store().clone(), path.clone());
        let put = async move { store.put(&to, PutPayload::from_bytes(content)).await };
        self.client.wait(put, ("PUT", &path)).map(drop)
    }

    fn read(&self, path: Path) -> io::Result<Option<Vec<u8>>> {
        let (store, from) = (self.client.store().clone(), path.clone());
        let read = async move { if_exists(read_object(&store, &from).await) };
        self.client.wait(read, ("GET", &path))
    }

    fn head(&self, path: Path) -> io::Result<Option<(u64, SystemTime)>> {
        let (store, of) = (self.client.store().clone(), path.clone());
        let head = async move { if_exists(store.head(&of).await) };
        let found = self.client.wait(head, ("HEAD", &path))?;
        Ok(found.map(|found| (found.size, found.last_modified.into())))
    }

    fn delete(&self, path: Path) -> io::Result<()> {
        let (store, of) = (self.client.store().clone(), path.clone());
        let delete = async move { if_exists(store.delete(&of).await) };
        self.client.wait(delete, ("DELETE", &path)).map(drop)
    }

    /// Names and times of all objects under a prefix.
    fn list(&self, prefix: Option<&str>) -> io::Result<Vec<(String, SystemTime)>> {
        let path = self.client.path(prefix.unwrap_or_default());
        let (client, below) = (self.client.clone(), path.clone());
        let list = async move {
            let objects = client.store().list(Some(&below));
            let named = objects.map_ok(|found| (client.name(&found.location).to_owned(), found.last_modified.into()));
            named.try_collect::<Vec<_>>().await
        };
        self.client.wait(list, ("LIST", &path))
    }

    /// Fetches a blob in parts, and compares it with its digest. None if it is missing or damaged.
    fn fetch(&self, digest: &str) -> io::Result<Option<Arc<FileReader>>> {
        for _ in 0..ATTEMPTS {
            let Some((size, _)) = self.head(self.path(digest))? else { return Ok(None) };
            let path = self.path(digest);
            let (store, from, file) = (self.client.store().clone(), path.clone(), self.copies.spool()?);
            let to = Arc::new(FileReader::new(file, size));
            let written = to.clone();
            let fetch = async move {
                let part = |start: u64| {
                    let (store, from, to) = (store.clone(), from.clone(), written.clone());
                    async move {
                        let end = size.min(start + PART as u64);
                        let bytes = store.get_range(&from, start..end).await?;
                        if bytes.len() as u64 == end - start {
                            to.file.write_all_at(&bytes, start).map_err(local)?;
                        }
                        Ok(())
                    }
                };
                let starts = futures::stream::iter((0..size).step_by(PART));
                starts.map(part).buffer_unordered(PARTS_AT_ONCE).try_collect::<Vec<()>>().await
            };
            self.client.wait(fetch, ("GET", &path))?;
            if hash_reader(&*to)? == digest {
                return Ok(Some(to));
            }
        }
        tracing::warn!(digest, "a blob in S3 does not match its digest");
        Ok(None)
    }
}

/// Reads an object to its end.
async fn read_object(store: &Arc<dyn object_store::ObjectStore>, path: &Path) -> object_store::Result<Vec<u8>> {
    Ok(store.get(path).await?.bytes().await?.into())
}

fn if_exists<T>(result: object_store::Result<T>) -> object_store::Result<Option<T>> {
    match result {
        Err(error) if is_missing(&error) => Ok(None),
        result => result.map(Some),
    }
}

/// An error of a temporary file.
fn local(error: io::Error) -> object_store::Error {
    object_store::Error::Generic { store: "temporary file", source: Box::new(error) }
}

impl BlobStore for S3Store {
    fn keep(&self, blobs: &[(&str, &[u8])]) -> Vec<io::Result<()>> {
        let put = |(digest, content): &(&str, &[u8])| {
            let (store, path, content) =
                (self.client.store().clone(), self.path(digest), Bytes::copy_from_slice(content));
            async move { store.put(&path, PutPayload::from_bytes(content)).await }
        };
        let failed = |error: &io::Error| io::Error::new(error.kind(), error.to_string());
        match self.client.wait_all(blobs.iter().map(put).collect()) {
            Ok(results) => {
                let results = results.into_iter().zip(blobs);
                let answer = |(result, (digest, _)): (object_store::Result<_>, &(&str, _))| {
                    result.map(drop).map_err(|error| self.client.error("PUT", &self.path(digest), &error))
                };
                results.map(answer).collect()
            }
            Err(error) => blobs.iter().map(|_| Err(failed(&error))).collect(),
        }
    }

    /// Every object is durable when it is written.
    fn sync(&self, _: &[&str]) -> io::Result<()> {
        Ok(())
    }

    fn get(&self, digest: &str) -> io::Result<Option<Vec<u8>>> {
        self.read(self.path(digest))
    }

    fn get_all(&self, digests: &[&str]) -> Vec<io::Result<Option<Vec<u8>>>> {
        let get = |digest: &&str| {
            let (store, path) = (self.client.store().clone(), self.path(digest));
            async move { if_exists(read_object(&store, &path).await) }
        };
        match self.client.wait_all(digests.iter().map(get).collect()) {
            Ok(results) => {
                let failed =
                    |(digest, error): (&str, object_store::Error)| self.client.error("GET", &self.path(digest), &error);
                let results = results.into_iter().zip(digests);
                results.map(|(result, digest)| result.map_err(|error| failed((digest, error)))).collect()
            }
            Err(_) => digests.iter().map(|digest| self.get(digest)).collect(),
        }
    }

    /// In a temporary file first: its digest is the name of the object.
    fn begin(&self) -> io::Result<Box<dyn PendingBlob>> {
        let file = self.copies.spool()?;
        Ok(Box::new(PendingObject { file, size: 0, client: self.client.clone(), copies: self.copies.clone() }))
    }

    fn size(&self, digest: &str) -> io::Result<Option<u64>> {
        Ok(self.head(self.path(digest))?.map(|(size, _)| size))
    }

    /// The blob is fetched when it is first read: most callers that wait for their turn find a copy then.
    fn open(&self, digest: &str) -> io::Result<Option<Box<dyn BlobReader>>> {
        if let Some(copy) = self.copies.get(digest) {
            return Ok(Some(Box::new(copy)));
        }
        let Some(size) = self.size(digest)? else { return Ok(None) };
        let store = Self { client: self.client.clone(), copies: self.copies.clone() };
        Ok(Some(Box::new(ObjectReader { store, digest: digest.to_owned(), size, copy: OnceLock::new() })))
    }

    fn is_intact(&self, digest: &str) -> io::Result<bool> {
        // From the bucket and not from the copy, which then is new.
        self.copies.remove(digest);
        let fetched = self.fetch(digest)?;
        let is_intact = fetched.is_some();
        if let Some(copy) = fetched {
            self.copies.insert(digest, copy);
        }
        Ok(is_intact)
    }

    /// Writes the note first: a sweep that has not seen it has removed the blob before the second request.
    fn renew(&self, digest: &str) -> io::Result<bool> {
        if self.size(digest)?.is_none() {
            return Ok(false);
        }
        self.put(self.renewal(digest), Bytes::new())?;
        Ok(self.size(digest)?.is_some())
    }

    fn remove(&self, digest: &str) -> io::Result<()> {
        self.copies.remove(digest);
        self.delete(self.path(digest))
    }

    fn sweep(&self, now: SystemTime, limit: usize, needed: &dyn Fn(&str) -> bool) -> io::Result<usize> {
        let before = now.checked_sub(YOUNG).unwrap_or(SystemTime::UNIX_EPOCH);
        let mut unneeded = Vec::new();
        for (name, _) in self.list(None)?.into_iter().filter(|(_, modified)| *modified < before) {
            let digest = name.replacen('/', "", 1);
            if let Some(renewed) = name.strip_prefix(RENEWED) {
                self.delete(self.renewal(renewed.trim_start_matches('/')))?;
            } else if is_digest(&digest) && unneeded.len() < limit && !needed(&digest) {
                unneeded.push(digest);
            }
        }
        let remove = |digest: &String| {
            let store = self.client.store().clone();
            let (path, renewal) = (self.path(digest), self.renewal(digest));
            async move {
                let is_young = |found: &Option<object_store::ObjectMeta>| {
                    found.as_ref().is_some_and(|found| SystemTime::from(found.last_modified) >= before)
                };
                // It may have been renewed, or written again, since it was listed.
                if is_young(&if_exists(store.head(&renewal).await)?) || is_young(&if_exists(store.head(&path).await)?) {
                    return Ok(false);
                }
                if_exists(store.delete(&path).await).map(|_| true)
            }
        };
        let mut removed = 0;
        for (result, digest) in self.client.wait_all(unneeded.iter().map(remove).collect())?.into_iter().zip(&unneeded)
        {
            let is_removed = result.map_err(|error| self.client.error("DELETE", &self.path(digest), &error))?;
            removed += usize::from(is_removed);
            self.copies.remove(digest);
        }
        Ok(removed)
    }

    /// Unfinished uploads are files without names on the disks of their servers.
    fn unfinished_elsewhere(&self) -> io::Result<UnfinishedFiles> {
        Ok(UnfinishedFiles::default())
    }

    fn put_note(&self, name: &str, content: &str) -> io::Result<()> {
        self.put(self.client.path(name), Bytes::copy_from_slice(content.as_bytes()))
    }

    fn note(&self, name: &str) -> io::Result<Option<String>> {
        Ok(self.read(self.client.path(name))?.and_then(|text| String::from_utf8(text).ok()))
    }

    fn notes(&self, folder: &str) -> io::Result<Vec<Note>> {
        let note = |(path, modified): (String, SystemTime)| {
            let name = path.strip_prefix(folder)?.strip_prefix('/')?.to_owned();
            Some(Note { name, modified })
        };
        Ok(self.list(Some(folder))?.into_iter().filter_map(note).collect())
    }

    fn remove_note(&self, name: &str) -> io::Result<()> {
        self.delete(self.client.path(name))
    }

    fn spool(&self) -> io::Result<File> {
        self.copies.spool()
    }
}

/// A blob that is written to a temporary file, and then to its object.
#[derive(Debug)]
struct PendingObject {
    file: File,
    size: u64,
    client: Arc<S3Client>,
    copies: Arc<LocalCopies>,
}

impl Write for PendingObject {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl PendingBlob for PendingObject {
    fn finish(self: Box<Self>, digest: &str) -> io::Result<()> {
        let Self { file, size, client, copies } = *self;
        let store = S3Store { client, copies };
        let copy = Arc::new(FileReader::new(file, size));
        let mut attempt = 1;
        loop {
            match store.upload(store.path(digest), copy.clone()) {
                Ok(()) => break,
                // A lost answer to the last request ends a large upload, and services answer differently to the retry: some say
                // that access is denied. The next attempt begins another upload.
                Err(error)
                    if size > PART as u64 && attempt < ATTEMPTS && error.kind() != io::ErrorKind::NotConnected =>
                {
                    tracing::debug!(%error, attempt, "a large upload begins again");
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
        store.copies.insert(digest, copy);
        Ok(())
    }
}

impl S3Store {
    /// Writes a file to an object: in one request if it is small, else in parts.
    fn upload(&self, path: Path, from: Arc<FileReader>) -> io::Result<()> {
        if from.size() <= PART as u64 {
            return self.put(path, read_part(&from, 0)?);
        }
        let (store, to) = (self.client.store().clone(), path.clone());
        let upload = async move {
            let mut parts = WriteMultipart::new_with_chunk_size(store.put_multipart(&to).await?, PART);
            let mut place = 0;
            loop {
                // A copy of the disk's cache: it blocks this thread for milliseconds, and the thread serves nothing else.
                let part = match read_part(&from, place) {
                    Ok(part) => part,
                    Err(error) => {
                        parts.abort().await?;
                        return Err(local(error));
                    }
                };
                if part.is_empty() {
                    return parts.finish().await.map(drop);
                }
                place += part.len() as u64;
                if let Err(error) = parts.wait_for_capacity(PARTS_AT_ONCE).await {
                    // The first error is the one to show.
                    let _ = parts.abort().await;
                    return Err(error);
                }
                parts.put(part);
            }
        };
        self.client.wait(upload, ("upload of", &path))
    }
}

/// A part of a file; empty at its end.
fn read_part(from: &FileReader, place: u64) -> io::Result<Bytes> {
    let left = from.size().saturating_sub(place);
    let mut part = vec![0; usize::try_from(left).unwrap_or(PART).min(PART)];
    from.file.read_exact_at(&mut part, place)?;
    Ok(part.into())
}

/// Reads an object from its local copy.
#[derive(Debug)]
struct ObjectReader {
    store: S3Store,
    digest: String,
    size: u64,
    /// Kept: it can be read to its end.
    copy: OnceLock<Arc<FileReader>>,
}

impl BlobReader for ObjectReader {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, buffer: &mut [u8], place: u64) -> io::Result<usize> {
        let damaged =
            || io::Error::new(io::ErrorKind::InvalidData, "the blob in S3 is missing or does not match its digest");
        let fetch = || self.store.fetch(&self.digest)?.ok_or_else(damaged);
        let copy = match self.copy.get() {
            Some(copy) => copy,
            None => {
                let fetched = self.store.copies.get_or_fetch(&self.digest, fetch)?;
                self.copy.get_or_init(|| fetched)
            }
        };
        copy.read_at(buffer, place)
    }
}
