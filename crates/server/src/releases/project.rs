//! Releases of a project: directories that are packed and signed when a fleet starts.
//!
//! Only new releases are packed: a registered release is recognised by the digest of its content.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use muster_core::names::{EnvName, Version};
use muster_core::release::dir::ContentHash;
use muster_core::release::manifest::{Digest, PayloadError, ReleaseEnv};
use muster_core::release::spec::{CheckKind, ReleaseSpec};
use muster_core::release::{ReleaseChecks, ReleaseRecord};
use muster_release::bundle::{BundleInfo, PackError, pack};
use muster_release::check::{CheckError, check};
use muster_release::key::SigningKey;
use muster_release::manifest::{ReleaseLabel, create, sign};
use muster_release::puppetfile::{ModuleOrigin, PUPPETFILE, Puppetfile};
use muster_release::tree::{BUNDLE_LIMIT, ReleaseTree, ReleaseTreeError, TreeFile};
use thiserror::Error;

use crate::app::Reader;
use crate::blobs::{Blobs, ReceiveError};

/// File that lists the repositories for `muster release build`.
const REPOS: &str = "repos.yaml";

#[derive(Debug, Error)]
pub enum ProjectBuildError {
    #[error("cannot read release {version}")]
    Read {
        version: Version,
        #[source]
        source: ReleaseTreeError,
    },
    #[error("cannot pack release {version}")]
    Pack {
        version: Version,
        #[source]
        source: PackError,
    },
    #[error("release {version} changed while it was packed; start again when no process writes there")]
    Changing { version: Version },
    #[error("the bundle of release {version} cannot be kept")]
    Keep {
        version: Version,
        #[source]
        source: io::Error,
    },
    #[error("the manifest of release {version} cannot be made")]
    Manifest {
        version: Version,
        #[source]
        source: PayloadError,
    },
    #[error("the packing of release {version} was cut off")]
    CutOff { version: Version },
}

/// Reason why a directory cannot be used as a release.
#[derive(Debug, Error)]
pub enum SourceError {
    #[error("cannot read {}", directory.display())]
    Read {
        directory: PathBuf,
        #[source]
        source: ReleaseTreeError,
    },
    #[error("{} cannot be used", directory.display())]
    Check {
        directory: PathBuf,
        #[source]
        source: CheckError,
    },
    #[error(
        "{} names repositories in repos.yaml or Puppetfile: build it with `muster release build`, and bring it to the server with \
         `muster release push`",
        directory.display()
    )]
    Repositories { directory: PathBuf },
    #[error("cannot read {}", path.display())]
    Content {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// A release in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectRelease {
    pub directory: PathBuf,
    /// Digest of its content.
    pub content: String,
    pub checks: ReleaseChecks,
    /// Ports of a node's own addresses that its checks connect to.
    pub check_ports: BTreeSet<u16>,
}

impl ProjectRelease {
    /// Checks a directory, and computes the digest of its content.
    pub fn check(directory: PathBuf) -> Result<Self, SourceError> {
        let read = ReleaseTree::read(&directory);
        let tree = read.map_err(|source| SourceError::Read { directory: directory.clone(), source })?;
        let spec = check(&tree).map_err(|source| SourceError::Check { directory: directory.clone(), source })?;
        // Nothing is fetched while a fleet starts.
        if tree.file(REPOS).is_some() || tree.file(PUPPETFILE).is_some_and(|file| has_modules_to_fetch(file, &tree)) {
            return Err(SourceError::Repositories { directory });
        }
        let mut content = ContentHash::default();
        for (path, file) in tree.files() {
            content.begin(path, file.executable, file.size);
            let failed = |source| SourceError::Content { path: file.source.clone(), source };
            let mut from = File::open(&file.source).map_err(failed)?;
            io::copy(&mut from, &mut HashWriter(&mut content)).map_err(failed)?;
        }
        let (content, checks) = (content.finish().to_string(), ReleaseChecks::new(&spec));
        Ok(Self { directory, content, checks, check_ports: check_ports(&spec) })
    }
}

/// Ports that checks use with an address of the node, such as `{eth0}:7201`.
fn check_ports(spec: &ReleaseSpec) -> BTreeSet<u16> {
    let addresses = spec.validate.iter().filter_map(|check| match check.kind().ok()? {
        CheckKind::Tcp(address) => Some(address),
        CheckKind::Http(http) => http.url.strip_prefix("http://")?.split('/').next(),
        CheckKind::Exec(_) | CheckKind::Process(_) | CheckKind::File(_) => None,
    });
    let of_nodes = addresses.filter(|address| address.starts_with('{'));
    of_nodes.filter_map(|address| address.rsplit_once(':').map_or(Some(80), |(_, port)| port.parse().ok())).collect()
}

/// True if a Puppetfile names modules that are not in the release.
fn has_modules_to_fetch(puppetfile: &TreeFile, tree: &ReleaseTree) -> bool {
    let parsed = fs::read_to_string(&puppetfile.source).ok().and_then(|text| Puppetfile::parse(&text).ok());
    parsed.is_some_and(|parsed| {
        let fetched = parsed.modules.iter().filter(|module| module.origin != ModuleOrigin::Local);
        fetched.into_iter().any(|module| tree.occupied_by(&module.dest).is_none())
    })
}

/// Writer that feeds a digest.
struct HashWriter<'a>(&'a mut ContentHash);

impl io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.add(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Signing key, author and time of a build.
#[derive(Clone, Debug)]
pub struct ReleaseBuilder {
    pub key: Arc<SigningKey>,
    pub by: String,
    pub now: Timestamp,
}

/// Builds releases that are not registered, and stores their bundles, in the order of `versions`, which is that of their
/// serials. Returns the records of all, including registered ones.
pub async fn build_new(
    reader: &Reader,
    env: &EnvName,
    sources: &[(Version, ProjectRelease)],
    builder: &ReleaseBuilder,
) -> Result<BTreeMap<Version, ReleaseRecord>, ProjectBuildError> {
    let known = {
        let fleets = reader.view.fleets();
        fleets.get(env).map(|fleet| fleet.releases().clone()).unwrap_or_default()
    };
    let mut serial = known.values().map(|release| release.serial).max().unwrap_or(0);
    let mut records = BTreeMap::new();
    for (version, source) in sources {
        let record = match known.get(version) {
            Some(known) => {
                if known.content == source.content && !is_kept(reader, known) {
                    // The same content gives the same bundle: a lost one is restored.
                    keep(reader, version, source).await?;
                }
                // Other content is refused at the registration.
                ReleaseRecord { content: source.content.clone(), ..known.clone() }
            }
            None => {
                serial += 1;
                build(reader, version, source, serial, builder).await?
            }
        };
        records.insert(version.clone(), record);
    }
    Ok(records)
}

fn is_kept(reader: &Reader, known: &ReleaseRecord) -> bool {
    let digest = Digest::new(known.digest.clone());
    digest.is_ok_and(|digest| reader.blobs.size(digest.hex()).is_ok_and(|size| size.is_some()))
}

async fn build(
    reader: &Reader,
    version: &Version,
    source: &ProjectRelease,
    serial: u64,
    builder: &ReleaseBuilder,
) -> Result<ReleaseRecord, ProjectBuildError> {
    let packed = keep(reader, version, source).await?;
    let ReleaseBuilder { key, by, now } = builder;
    let label = ReleaseLabel {
        version: version.clone(),
        env: ReleaseEnv::Any,
        serial,
        created: *now,
        expires: None,
        previous: None,
    };
    let signed = sign(&create(label, &packed), std::slice::from_ref(key.as_ref()));
    let signed = signed.map_err(|source| ProjectBuildError::Manifest { version: version.clone(), source })?;
    let BundleInfo { digest, size, content, .. } = packed;
    let (digest, content) = (digest.to_string(), content.to_string());
    let checks = Some(source.checks.clone());
    Ok(ReleaseRecord { digest, serial, size, content, signed, pushed: *now, by: by.clone(), checks })
}

/// Packs a release into the blob store.
async fn keep(reader: &Reader, version: &Version, source: &ProjectRelease) -> Result<BundleInfo, ProjectBuildError> {
    let (blobs, of, from) = (reader.blobs.clone(), version.clone(), source.clone());
    let packing = tokio::task::spawn_blocking(move || pack_blob(&blobs, &of, &from));
    let packed = packing.await.map_err(|_| ProjectBuildError::CutOff { version: version.clone() })??;
    if packed.content.as_str() == source.content {
        Ok(packed)
    } else {
        Err(ProjectBuildError::Changing { version: version.clone() })
    }
}

fn pack_blob(blobs: &Blobs, version: &Version, source: &ProjectRelease) -> Result<BundleInfo, ProjectBuildError> {
    let not_kept = |source| ProjectBuildError::Keep { version: version.clone(), source };
    let tree = ReleaseTree::read(&source.directory)
        .map_err(|source| ProjectBuildError::Read { version: version.clone(), source })?;
    let incoming = blobs.receive(BUNDLE_LIMIT).map_err(not_kept)?;
    let mut to = io::BufWriter::with_capacity(crate::blobs::downloads::PIECE, incoming);
    let packed = pack(&tree, &mut to).map_err(|source| ProjectBuildError::Pack { version: version.clone(), source })?;
    let incoming = to.into_inner().map_err(|error| not_kept(error.into_error()))?;
    let kept = blobs.finish(incoming, packed.digest.hex());
    kept.map_err(|error| match error {
        ReceiveError::Io(error) => not_kept(error),
        ReceiveError::TooLarge { .. } | ReceiveError::Another { .. } => not_kept(io::Error::other(error)),
    })?;
    Ok(packed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_the_nodes_addresses_are_found() {
        let spec = r#"{"applier": "script", "manifest": "apply", "validate": [
            {"name": "listens", "tcp": "{eth0}:7201"},
            {"name": "greets", "http": {"url": "http://{eth0}:7301/motto?at=http://db:5432"}},
            {"name": "default", "http": {"url": "http://{eth0}/"}},
            {"name": "elsewhere", "tcp": "db.example:5432"},
            {"name": "variable", "tcp": "{eth0}:{port}"},
            {"name": "runs", "exec": "check"}
        ]}"#;
        let ports = check_ports(&serde_json::from_str(spec).unwrap());
        assert_eq!(ports.into_iter().collect::<Vec<_>>(), [80, 7201, 7301]);
    }
}
