//! How many nodes a list has, where no command tells.
//!
//! `ql_nodes` is what the server's effort counts for a list, and only `DEBUG OBJECT` says it. Three things
//! can be read instead, each cheap: `LLEN`; the first and last few elements; and `MEMORY USAGE`, which walks
//! the first `m` nodes for `SAMPLES m` and extrapolates. What it extrapolates to depends on the server, and
//! that decides:
//!
//! - **By node** (Redis up to 7.4, every Valkey): `u(m) = base + nodes x (s1 + .. + sm) / m`. Asking for 1,
//!   2, 3 and 4 gives `nodes x s1`, `nodes x s2` and so on, exact, whatever the rest of the list is. The
//!   elements read at the head tell the sizes `s1 ..`, if only we knew where node 1 ends: a list filled from
//!   its end has a full first node, one filled from its front has not. So we try every end of node 1, lay the
//!   next nodes out as a full node must be, and take the end that explains all the products best. (`by_node`)
//! - **By element** (Redis 8.0 to 8.2) or **in total** (Redis >= 8.4): the node count is not in it. What is
//!   known then is the total `T`, the length, and how the ends are laid out: `nodes = T / mean node size`,
//!   and also `LLEN / mean elements in a node`. A sample rich in large elements makes the one too low and the
//!   other too high, so we take their geometric mean; and where the two ends are laid out in different ways,
//!   the two equations together say how much there is of each. (`by_total`)
//!
//! Invariant: never below 1 nor above the number of elements. What it cannot do: see the middle of a list (by
//! total), or know a layout that pushing at the ends does not make (LINSERT, LREM and LTRIM leave nodes half
//! empty).

use crate::engine::key::{Allocator, Flavour, ListNodeLimit, ServerProfile, Version};

/// Bytes to read at each end, at the most, as long as the elements are no larger than those seen before.
pub const PROBE_BYTES: u64 = 128 << 10;
/// The same where the ends must stand for the whole list, because the products do not tell.
pub const PROBE_BYTES_BY_TOTAL: u64 = 256 << 10;
/// Elements to read at each end, at the most: 1000 take the server about 0.1 ms.
pub const PROBE_ELEMENTS: u64 = 1_000;
/// Elements to read where that many fit: fewer say too little of a mixture.
const PROBE_ELEMENTS_MIN: u64 = 4;
/// Above this mean, elements are not read at all. Each is larger than any node may be and has one of its own.
pub const LARGE_ELEMENT_BYTES: u64 = 256 << 10;
/// Nodes whose products are asked for, one MEMORY USAGE each, where the server extrapolates by node.
const PRODUCTS: u64 = 4;
/// Nodes to walk in the one MEMORY USAGE where it extrapolates by element: about 0.05 ms.
const WALK: u64 = 1_000;
/// Two ends whose bytes per element differ by more than this factor are taken for two kinds of content.
const TWO_KINDS: f64 = 3.0;

/// An element, as far as its size in a node goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Element {
    /// Length in bytes.
    len: u64,
    /// Its value, where the node holds it as a number.
    number: Option<i64>,
}

impl Element {
    /// Takes the measure of an element that was read.
    pub fn of(bytes: &[u8]) -> Self {
        // As the server: at most 20 characters, and the text must be what the number prints as.
        let number = if bytes.len() <= 20 { std::str::from_utf8(bytes).ok() } else { None }
            .and_then(|text| text.parse::<i64>().ok().filter(|number| number.to_string() == text));
        Self { len: bytes.len() as u64, number }
    }

    /// Makes an element of this many bytes that is no number.
    pub fn of_len(len: u64) -> Self {
        Self { len, number: None }
    }

    /// Returns its length in bytes.
    pub fn len(self) -> u64 {
        self.len
    }

    /// Returns whether it is the empty string.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// What to ask of a list: few, short commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListProbePlan {
    /// `LRANGE key 0 n-1`. 0: do not ask.
    pub head_elements: u64,
    /// `LRANGE key -n -1`. 0: do not ask.
    pub tail_elements: u64,
    /// `MEMORY USAGE key SAMPLES n`, for each.
    pub memory_samples: Vec<u64>,
}

/// What was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListProbe {
    /// `LLEN`.
    pub llen: u64,
    /// `MEMORY USAGE` by `SAMPLES`.
    pub memory: Vec<(u64, u64)>,
    /// The first elements, in order.
    pub head: Vec<Element>,
    /// The last elements, in order.
    pub tail: Vec<Element>,
    /// Length of the key's name, in bytes.
    pub key_len: u64,
}

/// Says what to ask of a list of `llen` elements and `bytes` bytes.
///
/// `ends`: the larger of the first and the last element, from `LINDEX key 0` and `LINDEX key -1`, which are
/// to be read first unless `bytes / llen` is above [`LARGE_ELEMENT_BYTES`]. At each end no more is read than
/// [`PROBE_ELEMENTS`], and no more bytes than [`PROBE_BYTES`] (or [`PROBE_BYTES_BY_TOTAL`]) if the elements
/// there are no larger than that one and the mean. Up to [`LARGE_ELEMENT_BYTES`] four are always read, so at
/// the worst 1 MiB.
pub fn probe_plan(llen: u64, bytes: u64, ends: u64, server: &ServerProfile) -> ListProbePlan {
    let (memory_samples, most) = match Extrapolation::of(server) {
        Extrapolation::ByNode => ((1..=PRODUCTS).collect(), PROBE_BYTES),
        Extrapolation::ByElement => (vec![WALK], PROBE_BYTES_BY_TOTAL),
        Extrapolation::Total => (vec![1], PROBE_BYTES_BY_TOTAL),
    };
    let size = ends.max(bytes / llen.max(1)).max(1);
    let elements = if size > LARGE_ELEMENT_BYTES {
        0
    } else {
        (most / size).clamp(PROBE_ELEMENTS_MIN, PROBE_ELEMENTS).min(llen)
    };
    ListProbePlan { head_elements: elements, tail_elements: elements.min(llen - elements), memory_samples }
}

/// Estimates how many nodes the list has. `None`: too little was answered.
pub fn estimate_nodes(probe: &ListProbe, server: &ServerProfile) -> Option<u64> {
    if probe.llen == 0 {
        return None;
    }
    let packing = Packing::of(server);
    let estimate = if probe.head.is_empty() {
        unread(probe, &packing, server)?
    } else {
        match Extrapolation::of(server) {
            Extrapolation::ByNode => by_node(probe, &packing, server)
                .or_else(|| by_mean(probe, &packing, server))
                .or_else(|| by_elements(probe, &packing))?,
            _ if compress_depth(server).is_some() => by_elements(probe, &packing)?,
            Extrapolation::ByElement | Extrapolation::Total => {
                by_total(probe, &packing, server).or_else(|| by_elements(probe, &packing))?
            }
        }
    };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; saturates")]
    let nodes = estimate.round() as u64;
    Some(nodes.clamp(1, probe.llen))
}

/// What MEMORY USAGE multiplies its mean with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extrapolation {
    ByNode,
    ByElement,
    Total,
}

impl Extrapolation {
    fn of(server: &ServerProfile) -> Self {
        if server.flavour != Flavour::Redis || server.version < Version::new(8, 0, 0) {
            Self::ByNode
        } else if server.version < Version::new(8, 4, 0) {
            Self::ByElement
        } else {
            Self::Total
        }
    }
}

/// How a server lays elements out in nodes, and what MEMORY USAGE says of a node.
struct Packing {
    limit: ListNodeLimit,
    /// Redis < 7.0: ziplists.
    ziplist: bool,
    /// A large element is held as it is, without a listpack (Redis >= 7.4, Valkey >= 8.0).
    plain: bool,
    allocator: Blob,
}

/// What MEMORY USAGE takes for the size of a node's blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blob {
    /// Its bytes (Redis < 7.0, Redis >= 8.4).
    Bytes,
    /// jemalloc's size class.
    Jemalloc,
    /// glibc: a multiple of 16, and 8 more.
    Libc,
}

impl Packing {
    /// Nodes of a positive limit hold no more than this.
    const SAFETY_BYTES: u64 = 8 << 10;

    fn of(server: &ServerProfile) -> Self {
        let redis = server.flavour == Flavour::Redis;
        let ziplist = redis && server.version < Version::new(7, 0, 0);
        let exact = ziplist || Extrapolation::of(server) == Extrapolation::Total;
        Self {
            limit: server.limits.list_node,
            ziplist,
            plain: if redis {
                server.version >= Version::new(7, 4, 0)
            } else {
                server.version >= Version::new(8, 0, 0)
            },
            allocator: match server.allocator {
                _ if exact => Blob::Bytes,
                Allocator::Libc => Blob::Libc,
                Allocator::Jemalloc | Allocator::Unknown => Blob::Jemalloc,
            },
        }
    }

    fn limit_bytes(&self) -> u64 {
        match self.limit {
            ListNodeLimit::Bytes(bytes) => u64::from(bytes),
            ListNodeLimit::Elements(_) => Self::SAFETY_BYTES,
        }
    }

    /// An empty blob: ziplist 11, listpack 7.
    fn header(&self) -> u64 {
        if self.ziplist { 11 } else { 7 }
    }

    /// `quicklistNode`: 32 bytes, 40 since 7.0.
    fn node(&self) -> u64 {
        if self.ziplist { 32 } else { 40 }
    }

    /// Bytes that an element takes in a blob.
    fn entry(&self, element: Element) -> u64 {
        if self.ziplist { ziplist_entry(element) } else { listpack_entry(element) }
    }

    /// Bytes that the server reckons with before it adds an element.
    fn reckoned(&self, element: Element) -> u64 {
        let overhead = match (self.ziplist, element.len) {
            (false, _) => 8,
            (true, 0..64) => 2,
            (true, 64..254) => 3,
            (true, 254..16_384) => 7,
            (true, _) => 10,
        };
        element.len + overhead
    }

    /// Returns whether a node of `count` elements in `bytes` takes one more.
    fn takes(&self, count: u64, bytes: u64, element: Element) -> bool {
        let fits = bytes + self.reckoned(element) <= self.limit_bytes();
        match self.limit {
            ListNodeLimit::Bytes(_) => fits,
            ListNodeLimit::Elements(most) => fits && count < u64::from(most.max(1)),
        }
    }

    /// Returns what a blob may be larger than its size by: glibc leaves a rest too small for a block where it
    /// is.
    fn slacks(&self) -> &'static [f64] {
        if self.allocator == Blob::Libc { &[0.0, 16.0] } else { &[0.0] }
    }

    /// Returns what MEMORY USAGE counts for a node.
    fn size(&self, count: u64, bytes: u64, first: Element) -> u64 {
        let blob = if count == 1 && self.plain && first.len > self.limit_bytes() { first.len } else { bytes };
        self.node()
            + match self.allocator {
                Blob::Bytes => blob,
                Blob::Jemalloc => jemalloc_class(blob),
                Blob::Libc => (blob + 8).div_ceil(16) * 16 - 8,
            }
    }
}

/// Elements in order with prefix sums, so that any run of them is a node in constant time.
struct Run<'a> {
    packing: &'a Packing,
    elements: Vec<Element>,
    /// Bytes of the entries before each element.
    before: Vec<u64>,
    /// Where the node ends that is filled from each element on. `None`: the elements end before it is full.
    ends: Vec<Option<usize>>,
    /// How many of them were really read; the others repeat those.
    read: usize,
}

impl<'a> Run<'a> {
    /// Takes the elements, and repeats them until some nodes are full: a node may hold more small elements
    /// than we read.
    fn new(packing: &'a Packing, read: &[Element], nodes: u64) -> Self {
        let wanted = packing.limit_bytes() * (nodes + 1);
        let mut elements = read.to_vec();
        let mut bytes: u64 = read.iter().map(|element| packing.entry(*element)).sum();
        if let ListNodeLimit::Elements(most) = packing.limit {
            bytes = bytes.max(packing.limit_bytes() * (read.len() as u64 / u64::from(most.max(1))));
        }
        // The end of a node shows only when one more element does not fit.
        while !read.is_empty() && (bytes < wanted || (elements.len() as u64) < nodes + 2) {
            let count = elements.len();
            elements.extend_from_within(..count);
            bytes *= 2;
        }
        let mut before = vec![0];
        for element in &elements {
            before.push(before[before.len() - 1] + packing.entry(*element));
        }
        let mut run = Self { packing, elements, before, ends: Vec::new(), read: read.len() };
        // A node that begins later ends no earlier, so one pass finds all ends.
        let mut to = 0;
        for from in 0..run.elements.len() {
            to = to.max(from + 1);
            while run.takes(from, to) {
                to += 1;
            }
            run.ends.push((to < run.elements.len()).then_some(to));
        }
        run
    }

    /// Returns whether the node takes the element behind it.
    fn takes(&self, from: usize, to: usize) -> bool {
        self.elements
            .get(to)
            .is_some_and(|next| self.packing.takes((to - from) as u64, self.bytes(from, to), *next))
    }

    fn bytes(&self, from: usize, to: usize) -> u64 {
        self.packing.header() + self.before[to] - self.before[from]
    }

    fn size(&self, from: usize, to: usize) -> f64 {
        self.packing.size((to - from) as u64, self.bytes(from, to), self.elements[from]) as f64
    }

    /// Returns the end of the node that is filled from `from` on. `None`: the elements end before it is full.
    fn fill(&self, from: usize) -> Option<usize> {
        self.ends.get(from).copied().flatten()
    }

    /// Returns the node from `from` on whose size is nearest to `wanted`: its end and its size. A node that
    /// is not the last must be full, seen from the head or from the tail.
    fn nearest(&self, from: usize, wanted: f64, last: bool) -> Option<(usize, f64)> {
        let longest = self.fill(from)?;
        let mut nearest = (longest, self.size(from, longest));
        for to in (from + 1..longest).rev() {
            if !last && !self.is_full_towards_head(from, to) {
                break;
            }
            let size = self.size(from, to);
            if (size - wanted).abs() < (nearest.1 - wanted).abs() {
                nearest = (to, size);
            }
        }
        Some(nearest)
    }

    /// Returns whether the node could not have taken the element before it, either.
    fn is_full_towards_head(&self, from: usize, to: usize) -> bool {
        from > 0 && !self.packing.takes((to - from) as u64, self.bytes(from, to), self.elements[from - 1])
    }
}

/// Nodes, elements and bytes of some nodes laid out in full.
#[derive(Debug, Clone, Copy, Default)]
struct Layout {
    nodes: f64,
    elements: f64,
    bytes: f64,
}

impl Layout {
    /// Lays the elements out in full nodes, at least one.
    fn of(packing: &Packing, read: &[Element]) -> Option<Self> {
        let run = Run::new(packing, read, 1);
        let mut layout = Self::default();
        let mut from = 0;
        while let Some(to) = run.fill(from) {
            layout.nodes += 1.0;
            layout.elements += (to - from) as f64;
            layout.bytes += run.size(from, to);
            from = to;
            if from >= run.read {
                break;
            }
        }
        (layout.nodes > 0.0).then_some(layout)
    }

    /// Returns whether the two are of different kinds, and not just different samples of one.
    fn differs_from(self, other: Self) -> bool {
        let ratio = (self.bytes / self.elements) / (other.bytes / other.elements);
        !(1.0 / TWO_KINDS..TWO_KINDS).contains(&ratio)
    }

    fn plus(self, other: Self) -> Self {
        Self {
            nodes: self.nodes + other.nodes,
            elements: self.elements + other.elements,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// Bytes of MEMORY USAGE that are not nodes: key, entry, object and the list's head.
fn base(probe: &ListProbe, server: &ServerProfile) -> u64 {
    let key = probe.key_len + if probe.key_len < 32 { 2 } else { 4 };
    let one_block = match server.flavour {
        Flavour::Redis => server.version >= Version::new(8, 2, 0),
        _ => server.version >= Version::new(8, 1, 0),
    };
    if one_block {
        // The object with its key in it.
        jemalloc_class(16 + 1 + key) + 40
    } else {
        16 + 40 + 24 + jemalloc_class(key)
    }
}

/// See the module: the products `nodes x s1`, `nodes x s2`, .. and the layout that explains them.
fn by_node(probe: &ListProbe, packing: &Packing, server: &ServerProfile) -> Option<f64> {
    let products = products(probe, packing, server)?;
    let run = Run::new(packing, &probe.head, products.len() as u64);
    let full = run.fill(0)?;
    if let [product] = products[..] {
        // One product fits any end of node 1. The length says which is likely.
        let likely = by_elements(probe, packing)?;
        let nodes = (1..=full).map(|end| product / run.size(0, end));
        return nodes.min_by(|a, b| (a - likely).abs().total_cmp(&(b - likely).abs()));
    }
    let mut best = like_both_ends(probe, packing, &products, run.size(0, full));
    // A full first node is the usual case, and wins where others explain the products no better.
    for end in std::iter::once(full).chain((1..full).rev()) {
        if best.is_some_and(|best| best.error < EQUAL_MISFIT) {
            break;
        }
        for slack in packing.slacks() {
            let one = explain(&run, end, run.size(0, end) + slack, &products, probe.llen);
            if best.is_none_or(|best| one.error < best.error - EQUAL_MISFIT) {
                best = Some(one);
            }
        }
    }
    best.map(|best| best.nodes)
}

/// A number of nodes, and how badly it explains the products (a relative error).
#[derive(Debug, Clone, Copy)]
struct Explained {
    error: f64,
    nodes: f64,
}

/// Misfits closer than this are the same.
const EQUAL_MISFIT: f64 = 1e-4;
/// What leaves some of the products unexplained must explain the others this much better.
const PARTLY_EXPLAINED: f64 = 0.02;

/// More nodes than elements, or fewer than one, explain nothing.
fn impossible(nodes: f64, llen: u64) -> f64 {
    let most = llen as f64;
    if nodes > most {
        (nodes - most) / most
    } else if nodes < 1.0 {
        1.0 - nodes
    } else {
        0.0
    }
}

/// The head may be of one kind and what follows of another, which only the tail shows.
///
/// Two explanations: all nodes behind the first are as the tail's; or one node is a full one of the head's
/// kind and a later one of the tail's, and both say the same number.
fn like_both_ends(
    probe: &ListProbe,
    packing: &Packing,
    products: &[f64],
    head_size: f64,
) -> Option<Explained> {
    let tail = Layout::of(packing, &probe.tail)?;
    let tail_size = tail.bytes / tail.nodes;
    let further = products.get(1..).filter(|further| !further.is_empty())?;
    let mean = further.iter().sum::<f64>() / further.len() as f64;
    let spread =
        further.iter().map(|product| (product - mean).abs() / mean).sum::<f64>() / further.len() as f64;
    let mut explained = vec![Explained { error: spread + PARTLY_EXPLAINED, nodes: mean / tail_size }];
    if Layout::of(packing, &probe.head).is_some_and(|head| head.differs_from(tail)) {
        for (at, product) in products.iter().enumerate() {
            for later in &products[at + 1..] {
                let (by_head, by_tail) = (product / head_size, later / tail_size);
                let error = (by_head - by_tail).abs() / by_tail + PARTLY_EXPLAINED;
                explained.push(Explained { error, nodes: by_head });
            }
        }
    }
    explained
        .into_iter()
        .map(|one| Explained { error: one.error + impossible(one.nodes, probe.llen), ..one })
        .min_by(|a, b| a.error.total_cmp(&b.error))
}

/// Returns how many nodes at either end are not compressed. `None`: none is compressed.
fn compress_depth(server: &ServerProfile) -> Option<u64> {
    let depth = server.limits.settings.get("list-compress-depth")?.parse::<u64>().ok()?;
    (depth > 0).then_some(depth)
}

/// Where compression hides the sizes of all nodes but the first: the length alone, and both ends' layout.
fn by_elements(probe: &ListProbe, packing: &Packing) -> Option<f64> {
    let head = Layout::of(packing, &probe.head)?;
    let layout = Layout::of(packing, &probe.tail).map_or(head, |tail| head.plus(tail));
    Some((probe.llen as f64 * layout.nodes / layout.elements - 0.05).ceil())
}

/// Where only one report is known: as many nodes as of the mean size at the head make it up.
fn by_mean(probe: &ListProbe, packing: &Packing, server: &ServerProfile) -> Option<f64> {
    let (_, bytes) = *probe.memory.iter().max_by_key(|(samples, _)| *samples)?;
    let head = Layout::of(packing, &probe.head)?;
    Some(bytes.saturating_sub(base(probe, server)) as f64 * head.nodes / head.bytes)
}

/// Returns `nodes x size` of each of the first nodes.
fn products(probe: &ListProbe, packing: &Packing, server: &ServerProfile) -> Option<Vec<f64>> {
    let base = base(probe, server);
    let of = |samples: u64| {
        let (_, bytes) = probe.memory.iter().find(|(asked, _)| *asked == samples)?;
        Some(samples as f64 * bytes.saturating_sub(base) as f64)
    };
    // Compressed nodes are smaller than what they hold.
    let most = compress_depth(server).map_or(PRODUCTS, |depth| depth.min(PRODUCTS));
    let mut products = vec![of(1)?];
    for samples in 2..=most {
        let (Some(sum), Some(before)) = (of(samples), of(samples - 1)) else { break };
        // A list of fewer nodes than samples says nothing new.
        if sum - before < packing.node() as f64 {
            break;
        }
        products.push(sum - before);
    }
    Some(products)
}

/// Explains the products by a first node that ends at `end` and is of this size. The error is the mean
/// relative one.
///
/// The first node explains its own product by construction. Each further one is laid out as a full node must
/// be, seen from either side; the last is what is left over; and beyond the last, the product is the mean of
/// those before.
fn explain(run: &Run<'_>, end: usize, size: f64, products: &[f64], llen: u64) -> Explained {
    let nodes = products[0] / size;
    let mut error = 0.0;
    let mut seen = 0.0;
    let (mut sizes, mut explained) = (size, products[0]);
    let mut placed = 1.0;
    let mut from = end;
    for (at, product) in products.iter().enumerate().skip(1) {
        let left = nodes.round() - at as f64;
        if left < 0.5 {
            let mean = products[..at].iter().sum::<f64>() / at as f64;
            error += (product - mean).abs() / mean;
            seen += 1.0;
            break;
        }
        let Some((to, size)) = run.nearest(from, product / nodes, left < 1.5) else { break };
        error += (size * nodes - product).abs() / product;
        seen += 1.0;
        sizes += size;
        explained += product;
        placed += 1.0;
        from = to;
    }
    // These nodes hold more elements than there are, or leave too few for the others.
    let elements = from as f64 + (nodes - placed).max(0.0);
    let missing = (elements - llen as f64).max(0.0) / llen as f64;
    let misfit = if seen > 0.0 { error / seen } else { 0.0 };
    Explained {
        error: misfit + missing + impossible(nodes, llen),
        // All nodes together: a small first node alone would multiply its rounding.
        nodes: explained / sizes,
    }
}

/// See the module: the total, the length, and how both ends are laid out.
fn by_total(probe: &ListProbe, packing: &Packing, server: &ServerProfile) -> Option<f64> {
    let (samples, bytes) = *probe.memory.iter().max_by_key(|(samples, _)| *samples)?;
    let total = bytes.saturating_sub(base(probe, server)) as f64;
    let llen = probe.llen as f64;
    let head = Layout::of(packing, &probe.head)?;
    let tail = Layout::of(packing, &probe.tail).unwrap_or(head);
    let walked = (Extrapolation::of(server) == Extrapolation::ByElement).then_some(samples as f64);
    let nodes =
        two_kinds(head, tail, total, llen, walked).unwrap_or_else(|| blend(head.plus(tail), total, llen));
    // One node is seldom full; a whole number with the error of our `base` stays that number.
    Some((nodes - 0.05).ceil())
}

/// Where the ends are laid out in different ways, finds out how much there is of each.
fn two_kinds(head: Layout, tail: Layout, total: f64, llen: f64, walked: Option<f64>) -> Option<f64> {
    if !head.differs_from(tail) {
        return None;
    }
    let (a, b) = (head.bytes / head.elements, tail.bytes / tail.elements);
    // total = a x + b (llen - x), for the x elements that are laid out as the head is.
    let like_head = (total - b * llen) / (a - b);
    if !(0.0..=llen).contains(&like_head) {
        return None;
    }
    let nodes = like_head * head.nodes / head.elements + (llen - like_head) * tail.nodes / tail.elements;
    let Some(walked) = walked.filter(|walked| *walked < nodes) else { return Some(nodes) };
    // The walk did not come to the end, and `total` is the mean of the nodes it saw. Of these, x are as the
    // head: total / llen = (x sh + (m - x) st) / (x kh + (m - x) kt).
    let mean = total / llen;
    let [sh, kh, st, kt] = [
        head.bytes / head.nodes,
        head.elements / head.nodes,
        tail.bytes / tail.nodes,
        tail.elements / tail.nodes,
    ];
    let like_head = walked * (mean * kt - st) / (sh - st - mean * (kh - kt));
    (0.0..=walked).contains(&like_head).then(|| like_head + (llen - like_head * kh).max(0.0) / kt)
}

/// The geometric mean of what the total says and what the length says.
fn blend(layout: Layout, total: f64, llen: f64) -> f64 {
    let by_bytes = total * layout.nodes / layout.bytes;
    let by_elements = llen * layout.nodes / layout.elements;
    (by_bytes * by_elements).sqrt()
}

/// Nothing was read: the elements are huge, or LRANGE was refused. The mean stands for all.
fn unread(probe: &ListProbe, packing: &Packing, server: &ServerProfile) -> Option<f64> {
    let (_, bytes) = *probe.memory.iter().max_by_key(|(samples, _)| *samples)?;
    let total = bytes.saturating_sub(base(probe, server));
    let mean = Element::of_len((total / probe.llen).saturating_sub(2));
    let layout = Layout::of(packing, &[mean])?;
    Some(probe.llen as f64 * layout.nodes / layout.elements)
}

fn listpack_entry(element: Element) -> u64 {
    let body = match element.number {
        Some(0..128) => 1,
        Some(-4_096..4_096) => 2,
        Some(-32_768..32_768) => 3,
        Some(-8_388_608..8_388_608) => 4,
        Some(-2_147_483_648..2_147_483_648) => 5,
        Some(_) => 9,
        None => {
            element.len
                + match element.len {
                    0..64 => 1,
                    64..4_096 => 2,
                    _ => 5,
                }
        }
    };
    let back = match body {
        0..128 => 1,
        128..16_384 => 2,
        16_384..2_097_152 => 3,
        2_097_152..268_435_456 => 4,
        _ => 5,
    };
    body + back
}

fn ziplist_entry(element: Element) -> u64 {
    let body = match element.number {
        Some(0..=12) => 1,
        Some(-128..128) => 2,
        Some(-32_768..32_768) => 3,
        Some(-8_388_608..8_388_608) => 4,
        Some(-2_147_483_648..2_147_483_648) => 5,
        Some(_) => 9,
        None => {
            element.len
                + match element.len {
                    0..64 => 1,
                    64..16_384 => 2,
                    _ => 5,
                }
        }
    };
    // The length of the entry before it; of its neighbour, which we take to be alike.
    body + if body + 1 < 254 { 1 } else { 5 }
}

/// Four classes for each doubling, steps of 16 below 128.
fn jemalloc_class(bytes: u64) -> u64 {
    match bytes {
        0..=8 => 8,
        9..=128 => bytes.div_ceil(16) * 16,
        _ => {
            let step = 1 << (bytes - 1).ilog2().saturating_sub(2);
            bytes.div_ceil(step) * step
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{redis, valkey};
    use super::*;
    use Content::{Halves, Length, Mixed, Numbers};

    /// What the bench `list_nodes` fills its lists with.
    #[derive(Clone, Copy)]
    enum Content {
        Numbers,
        Length(u64),
        Mixed,
        Halves,
    }

    impl Content {
        fn element(self, index: u64, of: u64) -> Element {
            let dice = index.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
            match self {
                Numbers => Element::of((dice % 1_000_000).to_string().as_bytes()),
                Length(len) => Element::of_len(len),
                Mixed => Element::of_len([10, 100, 1_000, 3_000, 9_000, 20_000][(dice % 6) as usize]),
                Halves => Element::of_len(if index < of / 2 { 10 } else { 9_000 }),
            }
        }
    }

    fn libc(server: ServerProfile) -> ServerProfile {
        ServerProfile { allocator: Allocator::Libc, ..server }
    }

    /// A limit, content, elements, `ql_nodes`, and MEMORY USAGE for the samples that the plan asks for.
    type Observed = (i64, Content, u64, u64, &'static [u64]);

    fn probe(content: Content, llen: u64, memory: &[u64], server: &ServerProfile) -> ListProbe {
        let ends = content.element(0, llen).len().max(content.element(llen - 1, llen).len());
        let plan = probe_plan(llen, *memory.last().expect("one"), ends, server);
        let range = |from: u64, to: u64| (from..to).map(|index| content.element(index, llen)).collect();
        ListProbe {
            llen,
            memory: plan.memory_samples.iter().copied().zip(memory.iter().copied()).collect(),
            head: range(0, plan.head_elements),
            tail: range(llen - plan.tail_elements, llen),
            key_len: 4,
        }
    }

    fn check(server: &ServerProfile, observed: &[Observed]) {
        for (limit, content, llen, nodes, memory) in observed {
            let mut server = server.clone();
            server.limits.list_node = ListNodeLimit::from_setting(*limit);
            let probe = probe(*content, *llen, memory, &server);
            let estimated = estimate_nodes(&probe, &server).expect("enough was answered");
            let off = estimated.abs_diff(*nodes) as f64 / *nodes as f64;
            assert!(
                off <= 0.02,
                "{} {}, limit {limit}, {llen} elements: {estimated} nodes against {nodes}",
                server.flavour,
                server.version
            );
        }
    }

    /// Recorded from the five servers; lists filled from either end. docs/risk-model.md, "Nodes of a list".
    #[test]
    fn nodes_are_within_two_percent_of_what_debug_object_says() {
        // Redis 6.2.5: ziplists, counted to the byte.
        check(
            &redis(6, 2, 5),
            &[
                (-2, Length(10), 20_000, 30, &[91_738, 169_138, 194_938, 207_838]),
                (-2, Length(100), 10_000, 127, &[1_038_948, 1_038_948, 1_038_948, 1_038_948]),
                (-1, Length(1_000), 3_000, 750, &[3_050_338, 3_050_338, 3_050_338, 3_050_338]),
                (-2, Length(3_000), 1_000, 500, &[3_026_588, 3_026_588, 3_026_588, 3_026_588]),
                (-2, Length(9_000), 700, 700, &[6_332_288, 6_332_288, 6_332_288, 6_332_288]),
                (-5, Length(20_000), 500, 167, &[10_031_611, 10_031_611, 10_031_611, 10_031_611]),
                (-2, Mixed, 2_000, 1_236, &[68_068, 5_624_506, 4_228_032, 9_366_187]),
                (64, Mixed, 2_000, 1_236, &[68_068, 5_624_506, 4_228_032, 9_366_187]),
                (-2, Halves, 2_000, 1_002, &[3_878_830, 6_055_174, 7_058_176, 7_559_677]),
                (-1, Numbers, 30_000, 37, &[152_602, 152_657, 152_676, 152_648]),
            ],
        );
        // Redis 7.0.15: jemalloc's size classes.
        check(
            &redis(7, 0, 15),
            &[
                (-2, Length(10), 20_000, 30, &[93_448, 170_248, 195_848, 208_648]),
                (-2, Length(100), 10_000, 127, &[1_045_552, 1_045_552, 1_045_552, 1_045_552]),
                (-1, Length(1_000), 3_000, 750, &[3_102_088, 3_102_088, 3_102_088, 3_102_088]),
                (-2, Length(3_000), 1_000, 500, &[3_092_088, 3_092_088, 3_092_088, 3_092_088]),
                (-2, Length(9_000), 700, 700, &[7_196_088, 7_196_088, 7_196_088, 7_196_088]),
                (-5, Length(20_000), 500, 167, &[10_951_280, 10_951_280, 10_951_280, 10_951_280]),
                (-2, Mixed, 2_000, 1_236, &[89_080, 6_397_624, 4_808_952, 9_947_416]),
                (64, Mixed, 2_000, 1_236, &[89_080, 6_397_624, 4_808_952, 9_947_416]),
                (-2, Halves, 2_000, 1_002, &[4_144_360, 6_196_456, 7_564_520, 8_248_552]),
                (-1, Numbers, 30_000, 37, &[153_120, 153_120, 153_120, 153_120]),
            ],
        );
        // Redis 8.2.3: by element.
        check(
            &redis(8, 2, 3),
            &[
                (-2, Length(10), 20_000, 30, &[241_904]),
                (-2, Length(100), 10_000, 127, &[1_042_456]),
                (-1, Length(1_000), 3_000, 750, &[3_102_064]),
                (-2, Length(3_000), 1_000, 500, &[3_092_064]),
                (-2, Length(9_000), 700, 700, &[7_196_064]),
                (-5, Length(20_000), 500, 167, &[10_926_680]),
                (-2, Mixed, 2_000, 1_236, &[11_719_472]),
                (64, Mixed, 2_000, 1_236, &[11_719_472]),
                (-2, Halves, 2_000, 1_002, &[10_282_154]),
                (-1, Numbers, 30_000, 37, &[151_560]),
            ],
        );
        // Valkey 8.1.8: libc.
        check(
            &libc(valkey(8, 1, 8)),
            &[
                (-2, Length(10), 20_000, 30, &[91_744, 169_264, 195_104, 208_024]),
                (-2, Length(100), 10_000, 127, &[1_040_448, 1_040_448, 1_040_448, 1_040_448]),
                (-1, Length(1_000), 3_000, 750, &[3_048_064, 3_048_064, 3_048_064, 3_048_064]),
                (-2, Length(3_000), 1_000, 500, &[3_032_064, 3_032_064, 3_032_064, 3_032_064]),
                (-2, Length(9_000), 700, 700, &[6_328_064, 6_328_064, 6_328_064, 6_328_064]),
                (-5, Length(20_000), 500, 167, &[10_033_424, 10_033_424, 10_033_424, 10_033_424]),
                (-2, Mixed, 2_000, 1_236, &[79_168, 5_626_336, 4_232_128, 9_368_944]),
                (64, Mixed, 2_000, 1_236, &[79_168, 5_626_336, 4_232_128, 9_368_944]),
                (-2, Halves, 2_000, 1_002, &[3_895_840, 6_068_176, 7_064_832, 7_563_160]),
                (-1, Numbers, 30_000, 37, &[153_392, 153_096, 152_997, 152_948]),
            ],
        );
        // Valkey 9.1.2: libc; the first Halves nodes carry glibc's rest of 16 bytes.
        check(
            &libc(valkey(9, 1, 2)),
            &[
                (-2, Length(10), 20_000, 30, &[91_744, 169_264, 195_104, 208_024]),
                (-2, Length(100), 10_000, 127, &[1_040_464, 1_040_464, 1_040_464, 1_040_464]),
                (-1, Length(1_000), 3_000, 750, &[3_048_064, 3_048_064, 3_048_064, 3_048_064]),
                (-2, Length(3_000), 1_000, 500, &[3_032_064, 3_032_064, 3_032_064, 3_032_064]),
                (-2, Length(9_000), 700, 700, &[6_328_080, 6_328_080, 6_328_080, 6_328_080]),
                (-5, Length(20_000), 500, 167, &[10_033_424, 10_033_424, 10_033_424, 10_033_424]),
                (-2, Mixed, 2_000, 1_236, &[79_168, 5_626_336, 4_232_128, 9_368_944]),
                (64, Mixed, 2_000, 1_236, &[79_168, 5_626_336, 4_232_128, 9_368_944]),
                (-2, Halves, 2_000, 1_002, &[3_895_856, 6_076_208, 7_075_536, 7_575_200]),
                (-1, Numbers, 30_000, 37, &[153_392, 153_096, 152_997, 152_948]),
            ],
        );
    }

    /// A server, depth, content, elements, `ql_nodes`, and MEMORY USAGE.
    type Compressed = (ServerProfile, &'static str, Content, u64, u64, &'static [u64]);

    /// Recorded with `list-compress-depth`: only that many nodes at either end have the size of what they hold.
    #[test]
    fn nodes_of_compressed_lists_are_within_a_quarter() {
        let rows: [Compressed; 12] = [
            (redis(6, 2, 5), "1", Length(100), 10_000, 127, &[607_275, 317_080, 220_348, 171_982]),
            (redis(6, 2, 5), "1", Mixed, 2_000, 1_236, &[68_068, 129_868, 118_744, 175_909]),
            (redis(6, 2, 5), "2", Length(100), 10_000, 127, &[607_275, 823_111, 557_702, 424_998]),
            (redis(7, 0, 15), "1", Length(100), 10_000, 127, &[655_408, 342_480, 238_170, 186_016]),
            (redis(7, 0, 15), "1", Mixed, 2_000, 1_236, &[89_080, 168_184, 155_000, 207_736]),
            (redis(7, 0, 15), "1", Length(1_000), 3_000, 375, &[3_087_088, 1_575_088, 1_071_088, 819_088]),
            (redis(7, 0, 15), "2", Mixed, 2_000, 1_236, &[89_080, 6_397_624, 4_307_960, 3_322_456]),
            (redis(8, 2, 3), "1", Length(100), 10_000, 127, &[42_456]),
            (redis(8, 2, 3), "1", Mixed, 2_000, 1_236, &[212_901]),
            (redis(8, 2, 3), "2", Length(1_000), 3_000, 375, &[95_320]),
            (libc(valkey(9, 1, 2)), "1", Mixed, 2_000, 1_236, &[79_168, 138_496, 131_904, 187_936]),
            (libc(valkey(9, 1, 2)), "2", Length(100), 10_000, 127, &[609_664, 825_056, 559_541, 426_784]),
        ];
        for (mut server, depth, content, llen, nodes, memory) in rows {
            server.limits.settings.insert("list-compress-depth".to_owned(), depth.to_owned());
            let estimated = estimate_nodes(&probe(content, llen, memory, &server), &server).expect("enough");
            let off = estimated.abs_diff(nodes) as f64 / nodes as f64;
            assert!(off < 0.25, "{} depth {depth}: {estimated} nodes against {nodes}", server.version);
        }
    }

    #[test]
    fn reading_is_bounded_by_bytes_and_by_elements() {
        let server = redis(7, 0, 15);
        for (llen, bytes, ends, elements) in [
            (1_000_000, 13 << 20, 10, PROBE_ELEMENTS),
            (1_000, 1 << 20, 1_000, 125),
            // The mean is small, but the ends are not.
            (1_000_000, 13 << 20, 20_000, 6),
            (1_000, 200 << 20, 200_000, PROBE_ELEMENTS_MIN),
            // Never touch huge elements.
            (1_000, 1_000 << 20, 0, 0),
            (1_000_000, 13 << 20, 1 << 20, 0),
            (3, 100, 30, 3),
        ] {
            let plan = probe_plan(llen, bytes, ends, &server);
            assert_eq!(plan.head_elements, elements, "{llen} {bytes} {ends}");
            assert!(plan.head_elements + plan.tail_elements <= llen);
            assert_eq!(plan.memory_samples, [1, 2, 3, 4]);
        }
        assert_eq!(probe_plan(1_000, 1 << 20, 10, &redis(8, 2, 3)).memory_samples, [WALK]);
        assert_eq!(probe_plan(1_000, 1 << 20, 10, &redis(8, 4, 0)).memory_samples, [1]);
    }

    #[test]
    fn huge_elements_are_a_node_each_without_being_read() {
        for server in [redis(7, 0, 15), redis(8, 2, 3), redis(8, 4, 0), valkey(9, 1, 2)] {
            let probe = ListProbe {
                llen: 64,
                memory: vec![(1, 64 * (8 << 20))],
                head: Vec::new(),
                tail: Vec::new(),
                key_len: 4,
            };
            assert_eq!(estimate_nodes(&probe, &server), Some(64));
        }
    }

    #[test]
    fn one_report_with_the_head_is_enough_for_an_estimate() {
        let server = redis(7, 0, 15);
        let full = probe(Length(100), 10_000, &[1_045_552; 4], &server);
        let nodes = estimate_nodes(&ListProbe { memory: vec![(5, 1_045_552)], ..full }, &server);
        assert_eq!(nodes, Some(127));
    }

    #[test]
    fn the_estimate_stays_between_one_and_the_number_of_elements() {
        let server = redis(7, 0, 15);
        let full = probe(Length(10), 20_000, &[93_448, 170_248, 195_848, 208_648], &server);
        for bytes in [0, 1, 100, u64::MAX / 8] {
            for llen in [1, 2, 50, 20_000] {
                let memory = (1..=4).map(|samples| (samples, bytes)).collect();
                let nodes = estimate_nodes(&ListProbe { llen, memory, ..full.clone() }, &server);
                assert!(nodes.is_some_and(|nodes| (1..=llen).contains(&nodes)), "{bytes} {llen}: {nodes:?}");
            }
        }
        assert_eq!(estimate_nodes(&ListProbe { llen: 0, ..full.clone() }, &server), None);
        // Where MEMORY USAGE is refused, the elements that were read still tell how full a node is.
        let without_memory = ListProbe { memory: Vec::new(), ..full };
        assert_eq!(estimate_nodes(&without_memory, &server), Some(30));
        let nothing = ListProbe { head: Vec::new(), tail: Vec::new(), ..without_memory };
        assert_eq!(estimate_nodes(&nothing, &server), None);
    }

    #[test]
    fn numbers_are_recognized_as_the_server_does() {
        for (text, number) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
            ("007", None),
            ("-0", None),
            ("+1", None),
            ("1.0", None),
            (" 1", None),
            ("", None),
        ] {
            assert_eq!(Element::of(text.as_bytes()).number, number, "{text:?}");
        }
    }

    #[test]
    fn entries_take_what_the_formats_say() {
        for (element, listpack, ziplist) in [
            (Element::of(b"12"), 2, 2),
            (Element::of(b"100"), 2, 3),
            (Element::of(b"4000"), 3, 4),
            (Element::of(b"1000000"), 5, 5),
            (Element::of_len(10), 12, 12),
            (Element::of_len(63), 65, 65),
            (Element::of_len(100), 103, 103),
            (Element::of_len(1_000), 1_004, 1_007),
            (Element::of_len(9_000), 9_007, 9_007),
            (Element::of_len(20_000), 20_008, 20_010),
        ] {
            assert_eq!((listpack_entry(element), ziplist_entry(element)), (listpack, ziplist), "{element:?}");
        }
    }

    #[test]
    fn size_classes_are_those_of_jemalloc() {
        for (bytes, class) in [
            (1, 8),
            (9, 16),
            (65, 80),
            (129, 160),
            (161, 192),
            (1_025, 1_280),
            (4_097, 5_120),
            (8_192, 8_192),
            (8_193, 10_240),
            (9_014, 10_240),
            (65_536, 65_536),
        ] {
            assert_eq!(jemalloc_class(bytes), class, "{bytes}");
        }
    }
}
