//! Keeps the accepted value of an input through restarts: one file each, for its owner alone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use homeostat_document::Json;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::generation::hex;
use crate::value::{Digest, Value};

/// The number of the format; a file of another one is ignored, and the input has to answer again.
const FORMAT: u32 = 1;

/// Where the accepted value of one input is kept.
#[derive(Clone, Debug)]
pub struct Kept {
    path: PathBuf,
    origin: String,
}

#[derive(Deserialize, Serialize)]
struct Entry<V> {
    format: u32,
    /// A value of another origin is none of this input.
    origin: String,
    digest: Digest,
    value: V,
}

impl Kept {
    /// A file in `directory`, which is made with the first value. `set` and `input` name the input, and `origin` says where
    /// its values come from: after the origin has changed, a value of the old one is not used.
    #[must_use]
    pub fn new(directory: &Path, set: &str, input: &str, origin: impl Into<String>) -> Self {
        // Names may hold anything, and be long.
        let name = digest(&SHA256, format!("{set}\0{input}").as_bytes());
        Kept { path: directory.join(hex(name.as_ref(), 16)), origin: origin.into() }
    }

    /// The value that was kept; nothing if there is none that can be used.
    pub(crate) fn read(&self) -> Option<Value> {
        let text = fs::read(&self.path).ok()?;
        let entry: Entry<Json> = serde_json::from_slice(&text).ok()?;
        let is_ours = entry.format == FORMAT && entry.origin == self.origin;
        is_ours.then(|| Value { digest: entry.digest, ..Value::from(entry.value) })
    }

    pub(crate) fn write(&self, value: &Value) -> Result<(), Error> {
        let failed = |source| Error::Keep { path: self.path.clone(), source };
        let entry =
            Entry { format: FORMAT, origin: self.origin.clone(), digest: value.digest, value };
        let text = serde_json::to_vec(&entry).map_err(|error| failed(error.into()))?;
        self.write_bytes(&text).map_err(failed)
    }

    /// The file has its old content or the new one, whatever happens.
    fn write_bytes(&self, bytes: &[u8]) -> io::Result<()> {
        let directory = self.path.parent().unwrap_or(Path::new("."));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let staged = self.path.with_extension("new");
        let _ = fs::remove_file(&staged);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&staged)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&staged, &self.path)?;
        File::open(directory)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_kept_for_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("inputs");
        let kept = Kept::new(&place, "haproxy", "servers", "file /a json");
        assert_eq!(kept.read(), None);
        for value in [json!({ "a": [1, "x", null] }), json!("text\n")] {
            let value = Value::from(value);
            kept.write(&value).unwrap();
            assert_eq!(kept.read(), Some(value));
        }
        let mode = fs::metadata(&kept.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(&place).unwrap().count(), 1, "nothing is left behind");
    }

    #[test]
    fn a_value_of_another_origin_input_or_format_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let kept = Kept::new(directory.path(), "haproxy", "servers", "file /a json");
        kept.write(&Value::from("x")).unwrap();
        let other = |set, input, origin| Kept::new(directory.path(), set, input, origin).read();
        assert_eq!(other("haproxy", "servers", "file /b json"), None);
        assert_eq!(other("haproxy", "blocked", "file /a json"), None);
        assert_eq!(other("unbound", "servers", "file /a json"), None);
        let text = fs::read_to_string(&kept.path).unwrap();
        for broken in
            ["", "{", &text[..text.len() - 3], &text.replace("\"format\":1", "\"format\":2")]
        {
            fs::write(&kept.path, broken).unwrap();
            assert_eq!(kept.read(), None, "{broken}");
        }
    }

    #[test]
    fn a_write_that_was_interrupted_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let kept = Kept::new(directory.path(), "haproxy", "servers", "o");
        kept.write(&Value::from("old")).unwrap();
        fs::write(kept.path.with_extension("new"), "{\"for").unwrap();
        assert_eq!(kept.read(), Some(Value::from("old")));
        kept.write(&Value::from("new")).unwrap();
        assert_eq!(kept.read(), Some(Value::from("new")));
    }
}
