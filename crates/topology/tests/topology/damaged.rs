//! Random damage to a server's tree: never a panic, always a machine or an error.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};
use tandem_topology::{DeviceMap, Machine, Topology};

use crate::broken::server;
use crate::every_machine::check;
use crate::made_tree::MadeTree;

/// One thing done to a tree: to one of its files, links and folders.
#[derive(Clone, Debug)]
enum Damage {
    Fill(Vec<u8>),
    Remove,
    Folder,
    Link(String),
    Rename(Vec<u8>),
}

fn damage() -> impl Strategy<Value = Damage> {
    let nasty = prop::sample::select(vec![
        "",
        "-1",
        "0",
        "0x",
        "0xffffff",
        "4294967295",
        "0-4294967295",
        "0-16383",
        "1,0,7",
        "99999 Gb/sec",
        "0x030200",
        "0x15b3",
    ]);
    let bytes = prop_oneof![
        nasty.prop_map(|text| text.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..12),
        prop::collection::vec(any::<u8>(), 4090..5000),
    ];
    let target = prop::sample::select(vec![
        ".",
        "..",
        "/",
        "/etc",
        "/dev/zero",
        "../..",
        "class",
        "missing",
        "0000:03:00.0",
        "../../../devices/pci0000:00",
        "../../../../../../../..",
    ]);
    let name = prop_oneof![
        prop::collection::vec(any::<u8>(), 1..12),
        prop::sample::select(vec![
            "0000:03:00.0",
            "0000:ff:1f.7",
            "pci0000:00",
            "cpu1",
            "cpu4294967295",
            "node0",
            "node7",
            "mlx5_0",
            "ports",
            "device",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
    ];
    prop_oneof![
        4 => bytes.prop_map(Damage::Fill),
        1 => Just(Damage::Remove),
        1 => Just(Damage::Folder),
        2 => target.prop_map(|target| Damage::Link(target.to_owned())),
        2 => name.prop_map(Damage::Rename),
    ]
}

/// Everything in a folder, links not followed.
pub(crate) fn all(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let mut entries: Vec<_> = entries
        .map(|entry| (entry.path(), entry.file_type().unwrap()))
        .collect();
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    for (path, kind) in entries {
        if kind.is_dir() {
            all(&path, found);
        }
        found.push(path);
    }
}

/// Does it as far as the file system lets it: a name may be taken or not allowed.
fn inflict(path: &Path, damage: &Damage) {
    let remove = || match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        _ => fs::remove_file(path),
    };
    match damage {
        Damage::Fill(bytes) => drop(remove().and_then(|()| fs::write(path, bytes))),
        Damage::Remove => drop(remove()),
        Damage::Folder => drop(remove().and_then(|()| fs::create_dir(path))),
        Damage::Link(target) => drop(remove().and_then(|()| symlink(target, path))),
        Damage::Rename(name) => {
            let name = OsStr::from_bytes(name);
            let to = path.with_file_name(name);
            // Only within the folder: the name may have slashes or be dots.
            if to.file_name() == Some(name) {
                drop(fs::rename(path, to));
            }
        }
    }
}

/// A machine that can be placed, or an error that can be shown.
pub(crate) fn check_answer(tree: &MadeTree) -> Result<(), TestCaseError> {
    match Machine::read(tree.root()) {
        Ok(machine) => {
            let topology = Topology::of(&machine, &DeviceMap::default());
            check(&machine, &topology.unwrap())
        }
        Err(error) => {
            prop_assert!(!error.to_string().is_empty());
            Ok(())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Some files, links and folders are not what they were.
    #[test]
    fn a_damaged_tree_is_read_or_refused(
        damages in prop::collection::vec((any::<prop::sample::Index>(), damage()), 1..6)
    ) {
        let tree = server();
        for (index, damage) in &damages {
            let mut paths = Vec::new();
            all(tree.root(), &mut paths);
            if !paths.is_empty() {
                inflict(index.get::<PathBuf>(&paths), damage);
            }
        }
        check_answer(&tree)?;
    }
}

/// Random bytes in one attribute after the other, so that each parser sees many.
#[test]
fn an_attribute_of_any_bytes_is_read_or_refused() {
    let tree = server();
    let mut paths = Vec::new();
    all(tree.root(), &mut paths);
    paths.retain(|path| path.symlink_metadata().unwrap().is_file());
    let bytes = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        "[0-9a-fx,.:/ -]{0,20}".prop_map(String::into_bytes),
        "[0-9]{1,5}(\\.[0-9])? Gb/sec.{0,4}".prop_map(String::into_bytes),
    ];
    let mut runner = TestRunner::new(ProptestConfig::with_cases(1000));
    let outcome = runner.run(&(prop::sample::select(paths), bytes), |(path, bytes)| {
        let good = fs::read(&path).unwrap();
        fs::write(&path, bytes).unwrap();
        let answer = check_answer(&tree);
        fs::write(&path, good).unwrap();
        answer
    });
    outcome.unwrap();
}
