//! A release as files: the bundle, named by its digest, and beside it `<version>.release.json` with the signed manifest.
//!
//! The manifest finds its bundle by the digest, and a bundle its manifest by looking around: a person may name either.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use muster_core::names::Version;
use muster_core::release_manifest::{Digest, Manifest, PayloadError, PublicKey, Signature, SignedManifest};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::hashing::digest_of;
use crate::key::SigningKey;
use crate::manifest::{self, Label};
use crate::pack::{self, PackError, Packed};
use crate::tree::Tree;
use crate::unfinished::Unfinished;

/// What the file begins with, so that nobody takes it for another JSON.
const MARK: &str = "muster release 1";
const ENDING: &str = ".release.json";
/// Far more than the payload and all signatures need.
const LIMIT: u64 = 64 * 1024;

#[derive(Debug, Error)]
pub enum BuildError {
    #[error(transparent)]
    Pack(#[from] PackError),
    #[error("the manifest cannot be made")]
    Manifest(#[from] PayloadError),
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

#[derive(Debug, Error)]
pub enum OpenError {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is neither a bundle (.tar.zst) nor the manifest of one ({ENDING})", path.display())]
    NotARelease { path: PathBuf },
    #[error("the manifest {} is not understood", path.display())]
    Manifest {
        path: PathBuf,
        #[source]
        source: PayloadError,
    },
    #[error("the bundle of {} is not beside it: there is no {}", manifest.display(), bundle.display())]
    NoBundle { manifest: PathBuf, bundle: PathBuf },
    #[error("several manifests are for {}: name the one that you mean: {}", bundle.display(), listed(manifests))]
    Ambiguous { bundle: PathBuf, manifests: Vec<PathBuf> },
}

fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestFile {
    format: String,
    payload: String,
    signatures: Vec<Signature>,
}

/// A release that was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    pub bundle: PathBuf,
    pub manifest_file: PathBuf,
    pub manifest: Manifest,
    pub signed: SignedManifest,
    pub packed: Packed,
    /// The same release was there already, with the same signers: its manifest was left as it is.
    pub unchanged: bool,
}

/// Packs a tree into `directory`, signs it and writes both files.
///
/// When the manifest of the same content, signed by the same keys, is there already, it stays: to build twice changes
/// nothing. `fixed_serial` says that the serial of the label was asked for, and is no default.
pub fn build(
    tree: &Tree,
    directory: &Path,
    label: Label,
    fixed_serial: bool,
    keys: &[SigningKey],
) -> Result<Built, BuildError> {
    let (bundle, packed) = pack::pack_into(tree, directory)?;
    let manifest_file = directory.join(manifest_name(&label.version));
    let wanted = manifest::make(label, &packed);
    let before = read_manifest(&manifest_file).ok().and_then(|signed| Some((signed.read().ok()?, signed)));
    if let Some((manifest, signed)) = before.filter(|(manifest, signed)| {
        let same_serial = !fixed_serial || manifest.serial == wanted.serial;
        same_serial && is_same(manifest, &wanted) && is_signed_by(signed, &public_halves(keys))
    }) {
        return Ok(Built { bundle, manifest_file, manifest, signed, packed, unchanged: true });
    }
    let signed = manifest::sign(&wanted, keys)?;
    let written = write_manifest(directory, &manifest_file, &signed);
    written.map_err(|source| BuildError::Write { path: manifest_file.clone(), source })?;
    Ok(Built { bundle, manifest_file, manifest: wanted, signed, packed, unchanged: false })
}

/// Whether a manifest says what is wanted, apart from when it was made. One with an expiry is made anew each time: the
/// new one ends later.
fn is_same(before: &Manifest, wanted: &Manifest) -> bool {
    let undated = |manifest: &Manifest| Manifest { serial: 0, created: wanted.created, ..manifest.clone() };
    undated(before) == undated(wanted) && wanted.expires.is_none()
}

fn public_halves(keys: &[SigningKey]) -> Vec<PublicKey> {
    keys.iter().map(|key| key.public().clone()).collect()
}

fn is_signed_by(signed: &SignedManifest, keys: &[PublicKey]) -> bool {
    let alone =
        |signature: &Signature| SignedManifest { payload: signed.payload.clone(), signatures: vec![signature.clone()] };
    signed.signatures.len() == keys.len()
        && signed.signatures.iter().all(|signature| manifest::authenticate(&alone(signature), keys).is_ok())
}

/// What the file of a release's manifest is called.
pub fn manifest_name(version: &Version) -> String {
    format!("{version}{ENDING}")
}

fn write_manifest(directory: &Path, path: &Path, signed: &SignedManifest) -> io::Result<()> {
    let SignedManifest { payload, signatures } = signed.clone();
    let mut text = serde_json::to_string_pretty(&ManifestFile { format: MARK.to_owned(), payload, signatures })?;
    text.push('\n');
    let unfinished = Unfinished::beside(directory, "manifest");
    let mut file = fs::File::create_new(unfinished.path())?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    unfinished.rename_to(path)
}

fn read_manifest(path: &Path) -> Result<SignedManifest, OpenError> {
    let mut text = String::new();
    let read = fs::File::open(path).and_then(|file| file.take(LIMIT).read_to_string(&mut text));
    read.map_err(|source| OpenError::Read { path: path.to_owned(), source })?;
    let not_ours = || OpenError::NotARelease { path: path.to_owned() };
    let file: ManifestFile = serde_json::from_str(&text).map_err(|_| not_ours())?;
    if file.format != MARK {
        return Err(not_ours());
    }
    Ok(SignedManifest { payload: file.payload, signatures: file.signatures })
}

/// The files of a release that somebody named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub bundle: PathBuf,
    /// Without one there is only a bundle: nobody stands for it.
    pub signed: Option<FoundManifest>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundManifest {
    pub path: PathBuf,
    pub signed: SignedManifest,
    /// What it says; nothing is proved yet.
    pub manifest: Manifest,
}

/// Finds both files of a release from either of them. Proves nothing.
pub fn find(path: &Path) -> Result<Found, OpenError> {
    let failed = |source| OpenError::Read { path: path.to_owned(), source };
    let mut head = [0; 4];
    let read = fs::File::open(path).and_then(|mut file| file.read(&mut head)).map_err(failed)?;
    match head.get(..read) {
        Some([0x28, 0xb5, 0x2f, 0xfd]) => from_bundle(path),
        Some([b'{', ..]) => {
            let found = understand(path)?;
            let bundle = beside(path).join(pack::file_name(&found.manifest.digest));
            if !bundle.exists() {
                return Err(OpenError::NoBundle { manifest: path.to_owned(), bundle });
            }
            Ok(Found { bundle, signed: Some(found) })
        }
        Some(_) | None => Err(OpenError::NotARelease { path: path.to_owned() }),
    }
}

fn understand(path: &Path) -> Result<FoundManifest, OpenError> {
    let signed = read_manifest(path)?;
    let manifest = signed.read().map_err(|source| OpenError::Manifest { path: path.to_owned(), source })?;
    Ok(FoundManifest { path: path.to_owned(), signed, manifest })
}

fn from_bundle(bundle: &Path) -> Result<Found, OpenError> {
    let failed = |source| OpenError::Read { path: bundle.to_owned(), source };
    // Its name says its digest, unless somebody has renamed it; what it says is proved later in any case.
    let name = bundle.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let named = name.strip_prefix("sha256-").and_then(|name| name.strip_suffix(".tar.zst"));
    let digest = match named.and_then(|hex| Digest::new(format!("sha256:{hex}")).ok()) {
        Some(digest) => digest,
        None => fs::File::open(bundle).and_then(digest_of).map_err(failed)?.0,
    };
    let mut manifests = Vec::new();
    for entry in fs::read_dir(beside(bundle)).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.to_str().is_some_and(|path| path.ends_with(ENDING)) {
            manifests.extend(understand(&path).ok().filter(|found| found.manifest.digest == digest));
        }
    }
    manifests.sort_by(|a, b| a.path.cmp(&b.path));
    if manifests.len() > 1 {
        let manifests = manifests.into_iter().map(|found| found.path).collect();
        return Err(OpenError::Ambiguous { bundle: bundle.to_owned(), manifests });
    }
    Ok(Found { bundle: bundle.to_owned(), signed: manifests.pop() })
}

fn beside(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
