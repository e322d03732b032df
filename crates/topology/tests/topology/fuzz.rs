//! Any bytes in any attribute, for a fuzzer that is guided by coverage.

use std::fs;
use std::panic::AssertUnwindSafe;

use crate::broken::server;
use crate::damaged::{all, check_answer};

#[test]
fn attributes_of_any_bytes() {
    let tree = &AssertUnwindSafe(server());
    let mut paths = Vec::new();
    all(tree.root(), &mut paths);
    paths.retain(|path| path.symlink_metadata().unwrap().is_file());
    bolero::check!()
        .with_type::<(u8, Vec<u8>)>()
        .for_each(|(which, bytes)| {
            let path = &paths[usize::from(*which) % paths.len()];
            let good = fs::read(path).unwrap();
            fs::write(path, bytes).unwrap();
            let answer = check_answer(tree);
            fs::write(path, good).unwrap();
            answer.unwrap();
        });
}
