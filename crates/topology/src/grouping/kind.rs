//! Which NICs are for transfers: those of one kind, in order.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::machine::{Machine, Nic, NicKind, PciFunction};
use crate::note::Note;

/// A NIC with its PCI function, if it has one.
#[derive(Clone, Copy)]
pub(crate) struct Candidate<'m> {
    pub(crate) nic: &'m Nic,
    pub(crate) function: Option<&'m PciFunction>,
}

/// All NICs by PCI address, those in software last; names that differ only in a number by that
/// number.
pub(crate) fn candidates(machine: &Machine) -> Vec<Candidate<'_>> {
    let mut candidates: Vec<Candidate<'_>> = machine
        .nics
        .iter()
        .map(|nic| Candidate {
            nic,
            function: nic.pci.and_then(|pci| machine.function(pci)),
        })
        .collect();
    candidates.sort_by_key(|candidate| {
        let address = candidate.function.map(|function| function.address);
        let name = &candidate.nic.name;
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = name[stem.len()..].parse::<u64>().ok();
        (address.is_none(), address, stem, number, name)
    });
    candidates.dedup_by_key(|candidate| &candidate.nic.name);
    candidates
}

/// Keeps the kind that most NICs are of; of two with as many the faster one, then the lower number.
/// NICs in software count only where there are no others.
pub(crate) fn keep_one<'m>(all: &[Candidate<'m>], notes: &mut Vec<Note>) -> Vec<Candidate<'m>> {
    let mut kinds: BTreeMap<Option<NicKind>, Vec<Candidate<'m>>> = BTreeMap::new();
    for candidate in all {
        let kind = candidate.function.map(PciFunction::kind);
        kinds.entry(kind).or_default().push(*candidate);
    }
    let most = kinds.iter().max_by_key(|(kind, nics)| {
        let mbps = |candidate: &Candidate<'_>| u64::from(candidate.nic.rate_mbps.unwrap_or(0));
        let rate: u64 = nics.iter().map(mbps).sum();
        (kind.is_some(), nics.len(), rate, Reverse(**kind))
    });
    let Some(used) = most.map(|(kind, _)| *kind) else {
        return Vec::new();
    };
    let kept = kinds.remove(&used).unwrap_or_default();
    notes.extend(kinds.into_iter().map(|(kind, nics)| Note::OtherKind {
        kind,
        nics: nics.iter().map(|c| c.nic.name.clone()).collect(),
        used,
    }));
    kept
}
