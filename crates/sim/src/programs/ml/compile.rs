//! What a compiler does to its heap: it has an environment that stays, and makes each unit's tree anew several times.

use super::heap::{Heap, NIL, Root, Value, int, number};
use super::{Mutator, Random};

/// Times that a unit's tree is made anew. A choice: the phases of the SML/NJ compiler (elaboration, translation, CPS conversion, optimization,
/// code generation), Appel, "Compiling with Continuations", 1992.
const PASSES: u32 = 5;
/// Of a unit's nodes, one in so many looks a name up.
const LOOKS_UP: u32 = 8;
/// Of a unit's nodes, one in so many defines a name, which stays.
const DEFINES: u32 = 64;
/// Of the units, one in so many stays as it came out of the last pass. A choice: what is kept of a unit, its code and what it exports, is a part
/// of its last tree.
const STAYS: u32 = 4;
/// The least and the most nodes of a unit. Choices: 5 words each, 40 KB to 320 KB a pass.
const NODES: std::ops::Range<u32> = 2_000..16_000;
/// Names that are replaced, not added: the environment of a run that recompiles stays as large as it is.
const NAMES: u32 = 1 << 20;

/// The program.
pub(super) struct Compile {
    /// Words of allocation after which it ends.
    words: u64,
    /// Nodes of the environment to begin with.
    names: u32,
    entered: u32,
    random: Random,
    environment: Option<Root>,
    /// The list of what was compiled.
    compiled: Option<Root>,
    /// The unit's tree, and how often it was made anew.
    unit: Option<(Root, u32)>,
}

impl Compile {
    /// Ends after so many words were allocated; begins with an environment of so many names.
    pub const fn new(words: u64, names: u32, random: Random) -> Self {
        Self {
            words,
            names,
            entered: 0,
            random,
            environment: None,
            compiled: None,
            unit: None,
        }
    }

    /// A name of those that the environment began with, spread over all of them.
    fn name(&mut self) -> u32 {
        self.random
            .below(self.names.max(1))
            .wrapping_mul(0x9E37_79B1)
            % NAMES
    }
}

/// Enters a name: the path to it is copied, the rest shared, as a functional tree does it. A node is key, value, left and right.
fn enter(heap: &mut Heap, tree: Root, key: u32, value: u32) {
    let mut path = Vec::new();
    let mut at = heap.of(tree);
    while at != NIL {
        let here = number(heap.get(at, 0));
        if here == key {
            break;
        }
        let side = usize::from(key > here);
        path.push((heap.root(at), side));
        at = heap.get(at, 2 + side);
    }
    let (left, right) = if at == NIL {
        (NIL, NIL)
    } else {
        (heap.get(at, 2), heap.get(at, 3))
    };
    let mut below = heap.alloc([int(key), int(value), left, right]);
    for (node, side) in path.into_iter().rev() {
        let kept = heap.root(below);
        let node_at = heap.of(node);
        let mut fields: [Value; 4] = std::array::from_fn(|field| heap.get(node_at, field));
        fields[2 + side] = heap.of(kept);
        heap.drop_root(node);
        heap.drop_root(kept);
        below = heap.alloc(fields);
    }
    heap.set(tree, below);
}

/// What a name stands for.
fn look_up(heap: &mut Heap, tree: Root, key: u32) -> Option<u32> {
    let mut at = heap.of(tree);
    while at != NIL {
        let here = number(heap.get(at, 0));
        if here == key {
            return Some(number(heap.get(at, 1)));
        }
        at = heap.get(at, 2 + usize::from(key > here));
    }
    None
}

/// A tree of `nodes` nodes, each with a number.
fn grow(heap: &mut Heap, nodes: u32, random: &mut Random) -> Root {
    if nodes == 0 {
        return heap.root(NIL);
    }
    let below = random.below(nodes);
    let left = grow(heap, below, random);
    let right = grow(heap, nodes - 1 - below, random);
    let node = heap.alloc([
        int(random.below(1 << 30)),
        int(nodes),
        heap.of(left),
        heap.of(right),
    ]);
    heap.drop_root(right);
    heap.set(left, node);
    left
}

impl Compile {
    /// The tree in `tree`, which it takes, made anew.
    fn again(&mut self, heap: &mut Heap, tree: Root, environment: Root) -> Root {
        let node = heap.of(tree);
        if node == NIL {
            return tree;
        }
        let (sides, value) = ([heap.get(node, 2), heap.get(node, 3)], heap.get(node, 0));
        let sides = sides.map(|side| heap.root(side));
        if self.random.below(LOOKS_UP) == 0 {
            let name = self.name();
            look_up(heap, environment, name);
        }
        let sides = sides.map(|side| self.again(heap, side, environment));
        let node_at = heap.of(tree);
        let nodes = heap.get(node_at, 1);
        let new = heap.alloc([value, nodes, heap.of(sides[0]), heap.of(sides[1])]);
        sides.into_iter().for_each(|side| heap.drop_root(side));
        heap.set(tree, new);
        tree
    }

    fn unit(&mut self, heap: &mut Heap, environment: Root) {
        let (tree, passes) = match self.unit.take() {
            Some(unit) => unit,
            None => {
                let nodes = NODES.start + self.random.below(NODES.end - NODES.start);
                (grow(heap, nodes, &mut self.random), 0)
            }
        };
        let tree = self.again(heap, tree, environment);
        if passes + 1 < PASSES {
            self.unit = Some((tree, passes + 1));
            return;
        }
        let nodes = heap.of(tree);
        let nodes = if nodes == NIL {
            0
        } else {
            number(heap.get(nodes, 1))
        };
        if self.random.below(STAYS) == 0 {
            let compiled = *self.compiled.get_or_insert_with(|| heap.root(NIL));
            let cell = heap.alloc([heap.of(tree), heap.of(compiled)]);
            heap.set(compiled, cell);
        }
        heap.drop_root(tree);
        for _ in 0..nodes / DEFINES {
            let (name, value) = (self.name(), self.random.below(1 << 30));
            enter(heap, environment, name, value);
        }
    }
}

impl Mutator for Compile {
    fn work(&mut self, heap: &mut Heap) -> bool {
        if heap.work.allocated >= self.words {
            return false;
        }
        let environment = *self.environment.get_or_insert_with(|| heap.root(NIL));
        if self.entered < self.names {
            // In an order that keeps the tree shallow.
            for _ in 0..256.min(self.names - self.entered) {
                let name = self.entered.wrapping_mul(0x9E37_79B1) % NAMES;
                enter(heap, environment, name, self.entered);
                self.entered += 1;
            }
            return true;
        }
        self.unit(heap, environment);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::heap::Sizes;
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn the_environment_says_what_was_entered_last() {
        let sizes = Sizes {
            pages: 96,
            old_limit: 5,
            take_back: 4,
        };
        let mut heap = Heap::new(sizes, 1, 0);
        let mut random = Random::new(9);
        let mut map = BTreeMap::new();
        let tree = heap.root(NIL);
        for value in 0..4000 {
            let key = random.below(500);
            enter(&mut heap, tree, key, value);
            map.insert(key, value);
            while heap.step().is_some() {}
        }
        assert!(heap.work.collections.1 > 0, "{:?}", heap.work);
        for key in 0..500 {
            assert_eq!(look_up(&mut heap, tree, key), map.get(&key).copied());
        }
    }

    #[test]
    fn a_tree_made_anew_is_the_same() {
        let sizes = Sizes {
            pages: 128,
            old_limit: 50,
            take_back: 4,
        };
        let mut heap = Heap::new(sizes, 1, 0);
        let mut compile = Compile::new(0, 0, Random::new(1));
        let environment = heap.root(NIL);
        let mut tree = grow(&mut heap, 3000, &mut Random::new(4));
        let before = numbers(&mut heap, tree);
        for _ in 0..20 {
            tree = compile.again(&mut heap, tree, environment);
        }
        assert!(heap.work.collections.0 > 2 && before.len() == 3000);
        assert_eq!(numbers(&mut heap, tree), before);
    }

    fn numbers(heap: &mut Heap, tree: Root) -> Vec<u32> {
        let (mut found, mut left) = (Vec::new(), vec![heap.of(tree)]);
        while let Some(node) = left.pop().filter(|_| true) {
            if node != NIL {
                found.push(number(heap.get(node, 0)));
                left.push(heap.get(node, 3));
                left.push(heap.get(node, 2));
            }
        }
        found
    }
}
