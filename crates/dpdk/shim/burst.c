// Vectors to and from a port's queues.
#include <string.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "shim.h"

_Static_assert(sizeof(struct qd_segment) == 12, "as the Rust side has it");
_Static_assert(sizeof(struct qd_offload) == 4, "as the Rust side has it");
_Static_assert(sizeof(struct qd_received) == QD_SEGMENTS * 12 + QD_BURST * 2 + 12, "as the Rust side has it");

// A packet of several segments, or one that is not in our memory; the number of its segments, 0 where it had to be freed.
static __attribute__((noinline)) unsigned chain(struct rte_mbuf *m, struct qd_segment *to, unsigned room)
{
	struct rte_mbuf *head = m;
	unsigned n = 0;

	for (struct rte_mbuf *at = m; at != NULL; at = at->next, n++) {
		if (at->pool != qd_pool || n == room) {
			rte_pktmbuf_free(head);
			return 0;
		}
		to[n] = (struct qd_segment){qd_buffer(at), at->data_off + qd_shift, at->data_len};
	}
	// Whoever frees the buffers knows nothing of mbufs, so these are left as a pool wants them.
	while (m != NULL) {
		struct rte_mbuf *next = m->next;
		m->next = NULL;
		m->nb_segs = 1;
		m = next;
	}
	return n;
}

// Receives up to `wanted` packets. Their buffers are the caller's.
unsigned qd_rx(uint16_t port, uint16_t queue, unsigned wanted, struct qd_received *out)
{
	struct rte_mbuf *mbufs[QD_BURST];
	unsigned n, at = 0, packets = 0;

	out->single = 1;
	out->lost = 0;
	n = rte_eth_rx_burst(port, queue, mbufs, (uint16_t)RTE_MIN(wanted, (unsigned)QD_BURST));
	for (unsigned i = 0; i < n; i++) {
		struct rte_mbuf *m = mbufs[i];
		if (likely(m->nb_segs == 1 && m->pool == qd_pool)) {
			out->segment[at] = (struct qd_segment){qd_buffer(m), m->data_off + qd_shift, m->data_len};
			out->count[packets++] = 1;
			at++;
			continue;
		}
		// One segment each is kept for those that follow.
		unsigned segments = chain(m, &out->segment[at], QD_SEGMENTS - at - (n - 1 - i));
		if (segments == 0) {
			out->lost++;
			continue;
		}
		out->single &= segments == 1;
		out->count[packets++] = (uint16_t)segments;
		at += segments;
	}
	out->packets = packets;
	return n;
}

// Receives packets that lie in DPDK's own memory: look at them by qd_parts, then give them back by qd_free.
unsigned qd_rx_copying(uint16_t port, uint16_t queue, unsigned wanted, void **mbufs)
{
	return rte_eth_rx_burst(port, queue, (struct rte_mbuf **)mbufs, (uint16_t)RTE_MIN(wanted, (unsigned)QD_BURST));
}

unsigned qd_parts(const void *mbuf, struct qd_part *parts, unsigned max)
{
	unsigned n = 0;

	for (const struct rte_mbuf *m = mbuf; m != NULL; m = m->next) {
		if (n == max)
			return 0;
		parts[n++] = (struct qd_part){rte_pktmbuf_mtod(m, const uint8_t *), m->data_len};
	}
	return n;
}

void qd_free(void *mbuf)
{
	rte_pktmbuf_free(mbuf);
}

// Describes a packet's bytes to the device. Data that begins before what the mbuf calls its buffer is moved up; the caller
// has made sure that there is room.
static inline struct rte_mbuf *describe(const struct qd_segment *s)
{
	struct rte_mbuf *m = qd_mbuf(s->buffer);
	uint32_t offset = s->offset;

	if (unlikely(offset < qd_shift)) {
		uint8_t *buffer = qd_base + (size_t)s->buffer * qd_stride;
		memmove(buffer + qd_shift, buffer + offset, s->len);
		offset = qd_shift;
	}
	m->data_off = (uint16_t)(offset - qd_shift);
	m->data_len = (uint16_t)s->len;
	m->pkt_len = s->len;
	m->ol_flags = RTE_MBUF_F_EXTERNAL;
	return m;
}

static __attribute__((noinline)) void add_offload(struct rte_mbuf *m, const struct qd_offload *o)
{
	if (o->l4 == 0)
		return;
	m->tx_offload = 0;
	m->l2_len = o->l2;
	m->l3_len = o->l3;
	m->ol_flags |= o->ip6 ? RTE_MBUF_F_TX_IPV6 : RTE_MBUF_F_TX_IPV4;
	m->ol_flags |= o->l4 == 6 ? RTE_MBUF_F_TX_TCP_CKSUM : RTE_MBUF_F_TX_UDP_CKSUM;
}

// Sends packets in order; the number that the device took, whose buffers come back to the pool by themselves. The others'
// buffers stay the caller's. `offloads` may be NULL.
unsigned qd_tx(uint16_t port, uint16_t queue, const struct qd_segment *segments, const uint16_t *counts,
	       const struct qd_offload *offloads, unsigned packets)
{
	struct rte_mbuf *mbufs[QD_BURST];
	unsigned done = 0;

	while (done < packets) {
		unsigned k = RTE_MIN(packets - done, (unsigned)QD_BURST), sent = 0;

		for (unsigned i = 0; i < k; i++) {
			struct rte_mbuf *m = describe(segments), *last = m;
			for (unsigned s = 1; s < counts[done + i]; s++) {
				struct rte_mbuf *next = describe(segments + s);
				last->next = next;
				last = next;
				m->nb_segs++;
				m->pkt_len += next->data_len;
			}
			segments += counts[done + i];
			if (unlikely(offloads != NULL))
				add_offload(m, &offloads[done + i]);
			mbufs[i] = m;
		}
		// A driver may take a packet less than it could at a time.
		for (;;) {
			unsigned more = rte_eth_tx_burst(port, queue, mbufs + sent, (uint16_t)(k - sent));
			sent += more;
			if (more == 0 || sent == k)
				break;
		}
		done += sent;
		if (sent < k) {
			for (unsigned i = sent; i < k; i++) {
				struct rte_mbuf *m = mbufs[i];
				while (m != NULL) {
					struct rte_mbuf *next = m->next;
					m->next = NULL;
					m->nb_segs = 1;
					m = next;
				}
			}
			break;
		}
	}
	return done;
}
