//! A Merkle tree over what each node shall have, so that one signature covers thousands of different documents.
//!
//! The tree has the shape of RFC 9162: the left half of `n` leaves is the largest power of two below `n`. No leaf is
//! ever doubled, and leaves and inner nodes are hashed with different first bytes, so neither can stand for the other.

use serde::{Deserialize, Serialize};

use crate::{Digest, Name};

/// What a node shall have, and what it shall have if the rollout stops.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leaf {
    pub node: Name,
    pub document: Digest,
    /// The last good document at the time of the signature.
    pub fallback: Digest,
    pub class: Class,
}

/// The most that a step of the rollout may destroy on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    Reversible,
    Compensable,
    Irreversible,
}

const LEAF: &[u8] = &[0];
const INNER: &[u8] = &[1];

impl Class {
    const fn code(self) -> u8 {
        match self {
            Class::Reversible => 0,
            Class::Compensable => 1,
            Class::Irreversible => 2,
        }
    }
}

impl Leaf {
    /// `SHA256(0x00, length and bytes of: node, document, fallback, class)`; lengths are 4 bytes, the highest first.
    #[must_use]
    pub fn hash(&self) -> Digest {
        let class = [self.class.code()];
        let node = self.node.as_str().as_bytes();
        let fields: [&[u8]; 4] = [node, self.document.as_bytes(), self.fallback.as_bytes(), &class];
        // Names have at most 63 bytes.
        let lengths =
            fields.map(|field| u32::try_from(field.len()).unwrap_or(u32::MAX).to_be_bytes());
        let pairs =
            lengths.iter().zip(fields).flat_map(|(length, field)| [length.as_slice(), field]);
        Digest::of_parts(std::iter::once(LEAF).chain(pairs))
    }
}

fn join(left: &Digest, right: &Digest) -> Digest {
    Digest::of_parts([INNER, left.as_bytes().as_slice(), right.as_bytes()])
}

/// All hashes of a tree, so that proofs cost nothing but their length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// Leaves first. A last hash without a partner moves up as it is, which gives the shape of RFC 9162.
    levels: Vec<Vec<Digest>>,
}

impl Tree {
    #[must_use]
    pub fn new(leaves: impl IntoIterator<Item = Digest>) -> Self {
        let mut level: Vec<Digest> = leaves.into_iter().collect();
        let mut levels = Vec::new();
        while level.len() > 1 {
            let above = level.chunks(2).filter_map(|pair| match pair {
                [left, right] => Some(join(left, right)),
                [alone] => Some(*alone),
                _ => None,
            });
            let above = above.collect();
            levels.push(std::mem::replace(&mut level, above));
        }
        levels.push(level);
        Tree { levels }
    }

    /// Of a tree without leaves, the digest of nothing.
    #[must_use]
    pub fn root(&self) -> Digest {
        self.levels
            .last()
            .and_then(|level| level.first())
            .copied()
            .unwrap_or_else(|| Digest::of(b""))
    }

    /// The partners on the way from a leaf to the root; nothing if there is no such leaf.
    #[must_use]
    pub fn proof(&self, index: usize) -> Option<Vec<Digest>> {
        self.levels.first()?.get(index)?;
        let partners = self.levels.iter().enumerate();
        Some(partners.filter_map(|(up, level)| level.get((index >> up) ^ 1).copied()).collect())
    }
}

/// Whether the leaf has this place among so many leaves of the tree with this root.
#[must_use]
pub fn verify(root: &Digest, leaves: u64, index: u64, leaf: &Digest, proof: &[Digest]) -> bool {
    if index >= leaves {
        return false;
    }
    let (mut place, mut last) = (index, leaves - 1);
    let mut hash = *leaf;
    let mut partners = proof.iter();
    while last > 0 {
        if place & 1 == 1 {
            let Some(left) = partners.next() else { return false };
            hash = join(left, &hash);
        } else if place < last {
            let Some(right) = partners.next() else { return false };
            hash = join(&hash, right);
        }
        place >>= 1;
        last >>= 1;
    }
    partners.next().is_none() && hash == *root
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn leaf(number: usize) -> Leaf {
        let digest = |what: &str| Digest::of(format!("{what} {number}").as_bytes());
        Leaf {
            node: format!("n{number}").parse().unwrap(),
            document: digest("new"),
            fallback: digest("old"),
            class: Class::Reversible,
        }
    }

    fn hashes(count: usize) -> Vec<Digest> {
        (0..count).map(|number| leaf(number).hash()).collect()
    }

    /// The definition of RFC 9162, word for word.
    fn by_definition(leaves: &[Digest]) -> Digest {
        match leaves {
            [] => Digest::of(b""),
            [alone] => *alone,
            _ => {
                let half = leaves.len().next_power_of_two() / 2;
                let (left, right) = leaves.split_at(half);
                join(&by_definition(left), &by_definition(right))
            }
        }
    }

    #[test]
    fn every_leaf_of_small_trees_is_proven_at_its_place_only() {
        for count in 1..=33 {
            let hashes = hashes(count);
            let tree = Tree::new(hashes.clone());
            let root = tree.root();
            assert_eq!(root, by_definition(&hashes), "{count}");
            let count = count as u64;
            for (index, hash) in (0..).zip(&hashes) {
                let proof = tree.proof(usize::try_from(index).unwrap()).unwrap();
                for place in 0..=count {
                    assert_eq!(verify(&root, count, place, hash, &proof), place == index);
                }
            }
        }
        assert_eq!(Tree::new([]).proof(0), None);
        assert!(!verify(&Tree::new([]).root(), 0, 0, &Digest::of(b""), &[]));
    }

    #[test]
    fn a_proof_for_five_thousand_nodes_has_thirteen_hashes() {
        let hashes = hashes(5000);
        let tree = Tree::new(hashes.clone());
        let longest = (0..5000).map(|index| tree.proof(index).unwrap().len()).max();
        assert_eq!(longest, Some(13));
        assert!(verify(&tree.root(), 5000, 17, &hashes[17], &tree.proof(17).unwrap()));
    }

    #[test]
    fn an_inner_node_is_no_leaf() {
        let hashes = hashes(4);
        let root = Tree::new(hashes.clone()).root();
        let (left, right) = (join(&hashes[0], &hashes[1]), join(&hashes[2], &hashes[3]));
        // An attacker who may choose the number of leaves could cut a tree short. The number is signed with the root.
        assert!(verify(&root, 2, 0, &left, &[right]));
        assert!(!verify(&root, 4, 0, &left, &[right]));
    }

    #[test]
    fn a_doubled_last_leaf_makes_another_tree() {
        let three = hashes(3);
        let four = [three.clone(), vec![three[2]]].concat();
        assert_ne!(Tree::new(three).root(), Tree::new(four).root());
    }

    #[test]
    fn every_field_of_a_leaf_and_every_border_between_fields_counts() {
        let leaf = leaf(1);
        let mut others = vec![
            Leaf { node: "n11".parse().unwrap(), ..leaf.clone() },
            Leaf { document: leaf.fallback, ..leaf.clone() },
            Leaf { fallback: leaf.document, ..leaf.clone() },
            Leaf { document: leaf.fallback, fallback: leaf.document, ..leaf.clone() },
        ];
        let classes = [Class::Compensable, Class::Irreversible];
        others.extend(classes.map(|class| Leaf { class, ..leaf.clone() }));
        for other in others {
            assert_ne!(leaf.hash(), other.hash(), "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn what_was_tampered_with_is_not_proven(
            count in 1_usize..300,
            seed in any::<prop::sample::Index>(),
            at in any::<prop::sample::Index>(),
            bit in 0_usize..256,
            shorter: bool,
        ) {
            let hashes = hashes(count);
            let tree = Tree::new(hashes.clone());
            let index = seed.index(count);
            let (root, n, place) = (tree.root(), count as u64, index as u64);
            let proof = tree.proof(index).unwrap();
            prop_assert!(verify(&root, n, place, &hashes[index], &proof));
            let flip = |digest: &Digest| {
                let mut bytes = *digest.as_bytes();
                bytes[bit / 8] ^= 1 << (bit % 8);
                Digest::from_bytes(bytes)
            };
            prop_assert!(!verify(&root, n, place, &flip(&hashes[index]), &proof));
            prop_assert!(!verify(&flip(&root), n, place, &hashes[index], &proof));
            if !proof.is_empty() {
                let at = at.index(proof.len());
                let mut changed = proof.clone();
                changed[at] = flip(&changed[at]);
                prop_assert!(!verify(&root, n, place, &hashes[index], &changed));
                let mut cut = proof.clone();
                if shorter { cut.remove(at); } else { cut.push(proof[at]); }
                prop_assert!(!verify(&root, n, place, &hashes[index], &cut));
            }
        }
    }
}
