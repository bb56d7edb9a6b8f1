//! Looks at the declared and the recorded modules. It never writes.

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

use homeostat_core::{Failure, Hint, Owner, Retry, See, Seen, View};

use crate::key::{Key, ModuleName};
use crate::model::State;
use crate::source::{Modules, Roots};

/// Looks at modules. The kernel gives no hints that could be waited for.
#[derive(Debug)]
pub struct Reader {
    pub(crate) roots: Roots,
}

impl homeostat_core::Reader<Modules> for Reader {
    async fn observe(
        &mut self,
        view: &View<'_, Modules>,
        see: &mut See<'_, Key, State>,
    ) -> Result<(), Failure> {
        let declared = view.desired.iter();
        let known: BTreeSet<&Key> = declared.chain(view.records.keys()).collect();
        let keys = known.into_iter().filter(|key| view.focus.covers(key));
        let keys: Vec<Key> = keys.cloned().collect();
        if keys.is_empty() {
            return Ok(());
        }
        let loaded = &self.roots.loaded;
        fs::metadata(loaded).map_err(|error| {
            Failure::new(format!("{} cannot be read: {error}", loaded.display()), Retry::Soon)
        })?;
        for key in keys {
            match state(&self.roots, &key.0) {
                Ok(object) => see(Seen::Present { key, object, owner: Owner::Nobody }),
                Err(error) => see(Seen::Unknown { key, why: error.to_string() }),
            }
        }
        Ok(())
    }

    async fn hint(&mut self) -> Result<Hint<Key>, Failure> {
        std::future::pending().await
    }
}

/// What a module is now.
pub(crate) fn state(roots: &Roots, name: &ModuleName) -> io::Result<State> {
    let directory = roots.loaded.join(name.as_str());
    // A part of the kernel has a directory without this file, if it has parameters.
    match fs::read_to_string(directory.join("initstate")) {
        Ok(phase) if phase.trim_end() == "live" => return Ok(State::Loaded),
        // On its way, in or out.
        Ok(_) => return Ok(State::NotLoaded),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let is_there = directory.try_exists()? || is_built_in(&roots.built_in, name);
    Ok(if is_there { State::Loaded } else { State::NotLoaded })
}

/// Whether the list has it: `kernel/net/8021q/8021q.ko`. A kernel without modules has no list.
fn is_built_in(list: &Path, name: &ModuleName) -> bool {
    let list = fs::read_to_string(list).unwrap_or_default();
    let names = list.lines().filter_map(|line| line.rsplit('/').next()?.strip_suffix(".ko"));
    names.filter_map(|file| file.parse::<ModuleName>().ok()).any(|built_in| built_in == *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_kernel_counts_as_loaded_and_one_on_its_way_does_not() {
        let root = tempfile::tempdir().unwrap();
        let roots = Roots {
            loaded: root.path().join("module"),
            built_in: root.path().join("modules.builtin"),
            modprobe: "/nonexistent".into(),
        };
        for (name, phase) in
            [("dummy", Some("live\n")), ("bonding", Some("coming\n")), ("tcp_cubic", None)]
        {
            fs::create_dir_all(roots.loaded.join(name)).unwrap();
            if let Some(phase) = phase {
                fs::write(roots.loaded.join(name).join("initstate"), phase).unwrap();
            }
        }
        fs::write(&roots.built_in, "kernel/net/8021q/8021q.ko\nkernel/lib/crc-ccitt.ko\n").unwrap();
        for (name, expected) in [
            ("dummy", State::Loaded),
            ("bonding", State::NotLoaded),
            ("tcp_cubic", State::Loaded),
            ("8021q", State::Loaded),
            ("crc_ccitt", State::Loaded),
            ("crc-ccitt", State::Loaded),
            ("021q", State::NotLoaded),
        ] {
            assert_eq!(state(&roots, &name.parse().unwrap()).unwrap(), expected, "{name}");
        }
    }
}
