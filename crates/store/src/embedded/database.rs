//! Opens and creates the file. Creation is atomic, and each defect of a file has an error of its own.

use std::any::Any;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, io};

use redb::{Builder, Database, DatabaseError, ReadableDatabase, ReadableTable};

use super::EmbeddedOptions;
use super::file::{FileLog, LoggedFile};
use super::format::{FORMAT, HISTORY, KEYS, LEASED, LEASES, META, StoreCounters};
use super::head_file::{HeadFile, RememberedHead};

/// An embedded store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenFileError {
    #[error("the store {} is in use by another process: stop that process, or choose another store", .path.display())]
    InUse { path: PathBuf },

    #[error("{} is not a store of Muster: give the path of a store, or of a new file", .path.display())]
    Foreign {
        path: PathBuf,
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },

    #[error("the store {} is corrupt: keep a copy of the file and restore a backup", .path.display())]
    Corrupt {
        path: PathBuf,
        #[source]
        cause: redb::Error,
    },

    #[error("the store {} has format {found}, this version of Muster reads format {FORMAT}: use the version that wrote it", .path.display())]
    Format { path: PathBuf, found: u64 },

    #[error(
        "the store {} went back: it is at revision {head}, and it was at revision {remembered} or later; it is an older copy, \
         or it was deleted. Put the right file back, or restore a backup with `muster restore FILE --store embedded:{} --blobs DIR`",
        .path.display(), .path.display()
    )]
    WentBack { path: PathBuf, head: u64, remembered: u64 },

    #[error(
        "{} is damaged, so the store {} may be an older copy: delete that file if you know that the store is the latest, or \
         restore a backup with `muster restore FILE --store embedded:{} --blobs DIR`",
        .head_file.display(), .path.display(), .path.display()
    )]
    UnknownHead { path: PathBuf, head_file: PathBuf },

    #[error("cannot {doing} {}", .path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
}

const FORMAT_KEY: &str = "format";

/// The first bytes of every redb file. A file without them was never a store.
const MAGIC: &[u8] = b"redb\x1A\x0A\xA9\x0D\x0A";

/// An open database, with the state that the writer needs.
#[derive(Debug)]
pub(super) struct OpenDatabase {
    pub(super) database: Database,
    pub(super) counters: StoreCounters,
    pub(super) leases: Vec<(i64, Duration)>,
    pub(super) id: FileId,
    /// redb has repaired the file, because it was not closed.
    pub(super) repaired: bool,
}

impl OpenDatabase {
    /// Refuses a file that went back while it was open.
    pub(super) fn not_before(self, path: &Path, remembered: u64) -> Result<Self, OpenFileError> {
        match self.counters.head {
            head if head < remembered => Err(OpenFileError::WentBack { path: path.to_owned(), head, remembered }),
            _ => Ok(self),
        }
    }
}

/// Identity of a file on its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(super) fn of(file: &fs::Metadata) -> Self {
        Self { device: file.dev(), inode: file.ino() }
    }
}

/// Opens the file. Creates it, and its directory, if it does not exist.
///
/// The content is verified unless the file was closed as it is remembered. A file that went back, or may have, is refused
/// unless `accept_older` is set.
pub(super) fn open_or_create(
    path: &Path,
    options: &EmbeddedOptions,
    log: &Arc<FileLog>,
    head_file: &HeadFile,
) -> Result<OpenDatabase, OpenFileError> {
    let io = |doing, path: &Path, cause| OpenFileError::Io { doing, path: path.to_owned(), cause };
    let remembered = || match head_file.read() {
        Err(cause) if cause.kind() == io::ErrorKind::InvalidData => {
            let (path, head_file) = (path.to_owned(), head_file.path().to_owned());
            if options.accept_older { Ok(None) } else { Err(OpenFileError::UnknownHead { path, head_file }) }
        }
        read => read.map_err(|cause| io("read", head_file.path(), cause)),
    };
    let lowest = |remembered: Option<RememberedHead>| remembered.map_or(0, |known| known.revision);
    let mut is_new = false;
    if !path.try_exists().map_err(|cause| io("look at", path, cause))? {
        let remembered = lowest(remembered()?);
        if remembered > 0 && !options.accept_older {
            return Err(OpenFileError::WentBack { path: path.to_owned(), head: 0, remembered });
        }
        create(path)?;
        is_new = true;
    }
    let mut opened = open(path, options.cache_bytes, log)?;
    // Read while the file is locked: no other process writes it.
    let remembered = remembered()?;
    let head = opened.counters.head;
    if !is_new && (opened.repaired || remembered != Some(RememberedHead { revision: head, closed: true })) {
        tracing::info!(path = %path.display(), "the store was not closed properly: its content is verified");
        verify(path, &mut opened.database)?;
        opened.counters = without_panic(path, || read_counters(path, &opened.database))?;
    }
    if options.accept_older { Ok(opened) } else { opened.not_before(path, lowest(remembered)) }
}

/// Verifies all checksums of the file. Returns false if it was damaged and could be repaired.
pub(super) fn verify(path: &Path, database: &mut Database) -> Result<bool, OpenFileError> {
    let intact = without_panic(path, || database.check_integrity().map_err(|error| open_error(path, error)))?;
    if !intact {
        tracing::warn!(path = %path.display(), "the store was damaged and has been repaired");
    }
    Ok(intact)
}

/// redb panics on some kinds of damage. The panic becomes an error.
fn without_panic<T>(path: &Path, work: impl FnOnce() -> Result<T, OpenFileError>) -> Result<T, OpenFileError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let cause = redb::Error::Corrupted(panic_text(panic.as_ref()));
        Err(OpenFileError::Corrupt { path: path.to_owned(), cause })
    })
}

/// The message of a panic.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("it panicked without a message").to_owned()
}

/// Opens an existing file.
pub(super) fn open(path: &Path, cache: usize, log: &Arc<FileLog>) -> Result<OpenDatabase, OpenFileError> {
    let io = |doing, cause| OpenFileError::Io { doing, path: path.to_owned(), cause };
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(|e| io("open", e))?;
    let id = FileId::of(&file.metadata().map_err(|e| io("look at", e))?);
    check_magic(path, &file)?;
    let backend = LoggedFile::new(file, Arc::clone(log)).map_err(|e| open_error(path, e))?;
    without_panic(path, || {
        let repaired = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&repaired);
        let database = Builder::new()
            .set_cache_size(cache)
            .set_repair_callback(move |_| flag.store(true, Ordering::Relaxed))
            .create_with_backend(backend)
            .map_err(|error| open_error(path, error))?;
        let counters = read_counters(path, &database)?;
        let leases = read_leases(&database).map_err(|error| storage_error(path, "read", error))?;
        Ok(OpenDatabase { database, counters, leases, id, repaired: repaired.load(Ordering::Relaxed) })
    })
}

/// Creates a store under a temporary name and links it when it is complete, so that a crash leaves a complete store or
/// none. The link fails if the name exists: of two processes that start together, one creates the store.
fn create(path: &Path) -> Result<(), OpenFileError> {
    let io = |doing, cause| OpenFileError::Io { doing, path: path.to_owned(), cause };
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::create_dir_all(directory).map_err(|e| io("create the directory of", e))?;
    let mut name = path.file_name().ok_or_else(|| io("create", io::ErrorKind::InvalidFilename.into()))?.to_owned();
    name.push(format!(".new-{}", std::process::id()));
    let draft = directory.join(name);
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io("create", error)),
        _ => {}
    }

    let result = initialise(path, &draft).and_then(|()| match fs::hard_link(&draft, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(io("create", error)),
        _ => Ok(()),
    });
    let removed = fs::remove_file(&draft);
    result?;
    removed.map_err(|e| io("create", e))?;
    // The directory entry has to survive a power failure, too.
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(|e| io("sync the directory of", e))
}

fn initialise(path: &Path, draft: &Path) -> Result<(), OpenFileError> {
    let fill = || -> Result<(), redb::Error> {
        let database = Builder::new().create(draft)?;
        // The store will contain secrets.
        fs::set_permissions(draft, fs::Permissions::from_mode(0o600))?;
        let txn = database.begin_write()?;
        // All tables are created here: readers rely on them.
        txn.open_table(KEYS)?;
        txn.open_table(HISTORY)?;
        txn.open_table(LEASES)?;
        txn.open_table(LEASED)?;
        txn.open_table(META)?.insert(FORMAT_KEY, FORMAT)?;
        txn.commit()?;
        Ok(())
    };
    fill().map_err(|error| storage_error(path, "create", error))
}

fn check_magic(path: &Path, mut file: &File) -> Result<(), OpenFileError> {
    let mut first = [0; MAGIC.len()];
    let foreign = |cause| OpenFileError::Foreign { path: path.to_owned(), cause };
    match io::Read::read_exact(&mut file, &mut first) {
        Ok(()) if first == MAGIC => Ok(()),
        Ok(()) => Err(foreign("the first bytes are not those of a store".into())),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(foreign("the file is too short".into())),
        Err(cause) => Err(OpenFileError::Io { doing: "read", path: path.to_owned(), cause }),
    }
}

fn open_error(path: &Path, error: DatabaseError) -> OpenFileError {
    if let DatabaseError::DatabaseAlreadyOpen = error {
        return OpenFileError::InUse { path: path.to_owned() };
    }
    storage_error(path, "open", error.into())
}

/// Converts an error of redb: I/O errors are passed on, all others mean bad content.
fn storage_error(path: &Path, doing: &'static str, error: redb::Error) -> OpenFileError {
    let path = path.to_owned();
    if let redb::Error::Io(cause) = error {
        return OpenFileError::Io { doing, path, cause };
    }
    if let redb::Error::TableDoesNotExist(_) | redb::Error::TableTypeMismatch { .. } = error {
        return OpenFileError::Foreign { path, cause: error.into() };
    }
    OpenFileError::Corrupt { path, cause: error }
}

fn read_counters(path: &Path, database: &Database) -> Result<StoreCounters, OpenFileError> {
    let read = || -> Result<(Option<u64>, StoreCounters), redb::Error> {
        let txn = database.begin_read()?;
        let meta = txn.open_table(META)?;
        let format = meta.get(FORMAT_KEY)?.map(|format| format.value());
        Ok((format, StoreCounters::read(&meta)?))
    };
    match read() {
        Ok((Some(FORMAT), counters)) => Ok(counters),
        Ok((Some(found), _)) => Err(OpenFileError::Format { path: path.to_owned(), found }),
        Ok((None, _)) => {
            Err(OpenFileError::Foreign { path: path.to_owned(), cause: "the file has no format version".into() })
        }
        Err(error) => Err(storage_error(path, "read", error)),
    }
}

fn read_leases(database: &Database) -> Result<Vec<(i64, Duration)>, redb::Error> {
    let txn = database.begin_read()?;
    let table = txn.open_table(LEASES)?;
    let mut leases = Vec::new();
    for row in table.iter()? {
        let (lease, ttl) = row?;
        leases.push((lease.value(), Duration::from_millis(ttl.value())));
    }
    Ok(leases)
}
