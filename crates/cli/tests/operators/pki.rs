//! `tandem pki`.

use crate::{assert_refused, mode, run, stdout};

#[test]
fn certificates_are_made_renewed_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let pki = |args: &[&str]| run(folder.path(), &[&["pki"], args, &["--dir", "pki"]].concat());
    assert_refused(
        &pki(&["issue", "--role", "gateway", "--name", "g"]),
        2,
        "pki/ca.pem: there is no authority in this folder; tandem pki --dir pki init makes one",
    );
    stdout(&pki(&["init"]));
    assert_refused(&pki(&["init"]), 2, "pki/ca.pem is there already");
    let issue = [
        "issue", "--role", "worker", "--name", "decode-0", "--days", "5", "--san", "10.0.0.7",
    ];
    let said = stdout(&pki(&issue));
    assert!(
        said.contains("worker decode-0")
            && (said.contains("(4 days)") || said.contains("(5 days)")),
        "{said}"
    );
    assert!(said.contains("10.0.0.7"), "{said}");
    assert_refused(&pki(&issue), 2, "decode-0.pem is there already");
    assert_refused(
        &pki(&["issue", "--role", "worker", "--name", "a b"]),
        2,
        "worker id \"a b\"",
    );
    stdout(&pki(&["issue", "--role", "gateway", "--name", "gateway-2"]));
    let key = || std::fs::read(folder.path().join("pki/decode-0.key")).unwrap();
    let before = key();
    let said = stdout(&pki(&["renew", "decode-0", "--days", "9"]));
    assert!(
        said.contains("(8 days)") || said.contains("(9 days)"),
        "{said}"
    );
    assert_eq!(key(), before);
    stdout(&pki(&["renew", "decode-0", "--new-key"]));
    assert_ne!(key(), before);
    assert_eq!(mode(&folder.path().join("pki/decode-0.key")), 0o600);
    assert_eq!(mode(&folder.path().join("pki/ca.key")), 0o600);
    let shown = stdout(&pki(&["show"]));
    for word in ["ca ", "authority", "gateway-2", "worker decode-0"] {
        assert!(shown.contains(word), "{shown}");
    }
    assert_refused(&pki(&["show", "nobody"]), 2, "nobody.pem: No such file");
    // One that cannot be read hides none of the others.
    std::fs::write(folder.path().join("pki/broken.pem"), "").unwrap();
    let shown = pki(&["show"]);
    assert_refused(&shown, 2, "pki/broken.pem: ");
    assert!(String::from_utf8_lossy(&shown.stdout).contains("worker decode-0"));
    let odd = [
        "issue", "--role", "gateway", "--name", "g", "--san", "http://x",
    ];
    assert_refused(
        &pki(&odd),
        2,
        "want a host's name or an IP address, got \"http://x\"",
    );
}
