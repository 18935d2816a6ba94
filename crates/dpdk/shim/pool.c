// Our packet memory as a pool of mbufs: mbuf i always has the bytes of buffer i. The mbufs are an array of their own; a free
// one is a free buffer of the router's, so the pool keeps nothing itself.
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_mbuf_pool_ops.h>
#include <rte_memory.h>
#include <rte_mempool.h>

#include "shim.h"

_Static_assert(sizeof(struct rte_mbuf) == 128, "an mbuf is two lines");
// A pool puts a line before each object and uses its end; what a device must know of a buffer that is not its own fits before.
_Static_assert(sizeof(struct rte_mempool_objhdr) + sizeof(struct rte_mbuf_ext_shared_info) <= 64, "both fit into a line");

struct rte_mempool *qd_pool;
struct rte_mempool *qd_copying_pool;
uint8_t *qd_first;
uint8_t *qd_base;
uint32_t qd_stride, qd_shift;

static struct qd_pool_ops free_buffers;
static struct qd_region region;
static int filled;
// Devices cannot reach the region: their addresses are physical, and its pages are too small or not for us to know.
static int out_of_reach;
// IO address of each page of the region, where these are physical.
static rte_iova_t *pages;

static int pool_alloc(struct rte_mempool *mp)
{
	mp->pool_data = &region;
	return 0;
}

static void pool_free(struct rte_mempool *mp)
{
	(void)mp;
}

static int pool_put(struct rte_mempool *mp, void *const *objects, unsigned n)
{
	uint32_t buffers[QD_BURST];

	(void)mp;
	// While the pool is being made, every mbuf is put into it once; the buffers are free ones of the router's already.
	if (!filled)
		return 0;
	while (n > 0) {
		unsigned k = RTE_MIN(n, (unsigned)QD_BURST);
		for (unsigned i = 0; i < k; i++)
			buffers[i] = qd_buffer(objects[i]);
		free_buffers.give(buffers, k);
		objects += k;
		n -= k;
	}
	return 0;
}

static int pool_get(struct rte_mempool *mp, void **objects, unsigned n)
{
	uint32_t buffers[QD_BURST];
	unsigned done = 0;

	while (done < n) {
		unsigned k = RTE_MIN(n - done, (unsigned)QD_BURST);
		unsigned got = free_buffers.take(buffers, k);
		for (unsigned i = 0; i < got; i++)
			objects[done + i] = qd_mbuf(buffers[i]);
		done += got;
		if (got < k) {
			// All or nothing.
			pool_put(mp, objects, done);
			return -ENOBUFS;
		}
	}
	return 0;
}

static unsigned pool_count(const struct rte_mempool *mp)
{
	// Every mbuf that was put in counts until the pool is made, or DPDK takes it for broken.
	return filled ? free_buffers.available() : mp->populated_size;
}

// Puts mbufs one after the other. DPDK's own way leaves gaps, so that none crosses a page: that is for devices that look at
// mbufs, which none does.
static int pool_populate(struct rte_mempool *mp, unsigned max, void *memory, rte_iova_t iova, size_t len,
			 rte_mempool_populate_obj_cb_t *add, void *arg)
{
	unsigned n = RTE_MIN(max, (unsigned)(len / QD_MBUF_STRIDE));

	(void)iova;
	for (unsigned i = 0; i < n; i++)
		add(mp, arg, (uint8_t *)memory + (size_t)i * QD_MBUF_STRIDE + mp->header_size, RTE_BAD_IOVA);
	return (int)n;
}

static const struct rte_mempool_ops operations = {
	.name = "quiver",
	.alloc = pool_alloc,
	.free = pool_free,
	.enqueue = pool_put,
	.dequeue = pool_get,
	.get_count = pool_count,
	.populate = pool_populate,
};

static rte_iova_t iova_of(const uint8_t *at)
{
	size_t offset = (size_t)(at - region.base);

	return pages ? pages[offset / region.page] + offset % region.page : (rte_iova_t)(uintptr_t)at;
}

static void nothing_to_free(void *address, void *arg)
{
	(void)address;
	(void)arg;
}

static void init_mbuf(struct rte_mempool *mp, void *arg, void *object, unsigned i)
{
	struct rte_mbuf *m = object;
	struct rte_mbuf_ext_shared_info *shared = RTE_PTR_SUB(object, 64);
	uint8_t *start = region.base + (size_t)i * region.stride + qd_shift;

	(void)arg;
	memset(m, 0, sizeof(*m));
	m->buf_addr = start;
	rte_mbuf_iova_set(m, iova_of(start));
	m->buf_len = (uint16_t)(region.data_end - qd_shift);
	m->data_off = RTE_PKTMBUF_HEADROOM;
	m->pool = mp;
	m->nb_segs = 1;
	m->port = RTE_MBUF_PORT_INVALID;
	m->ol_flags = RTE_MBUF_F_EXTERNAL;
	shared->free_cb = nothing_to_free;
	shared->fcb_opaque = NULL;
	rte_mbuf_ext_refcnt_set(shared, 1);
	m->shinfo = shared;
	rte_mbuf_refcnt_set(m, 1);
}

// Physical addresses of the region's pages, and DPDK told of the memory, so that devices can be given it.
static int register_memory(void)
{
	unsigned n = (unsigned)(region.len / region.page);

	if (rte_eal_iova_mode() == RTE_IOVA_PA) {
		// A buffer that crossed a page would lie in two places.
		out_of_reach = region.page < (2u << 20);
		pages = rte_calloc("quiver", n, sizeof(*pages), 0);
		if (pages == NULL)
			return -ENOMEM;
		for (unsigned i = 0; i < n && !out_of_reach; i++) {
			pages[i] = rte_mem_virt2iova(region.base + (size_t)i * region.page);
			out_of_reach = pages[i] == RTE_BAD_IOVA;
		}
		if (out_of_reach) {
			// Virtual devices do not mind.
			rte_free(pages);
			pages = NULL;
		}
	}
	return rte_extmem_register(region.base, region.len, pages, n, region.page) == 0 ? 0 : -rte_errno;
}

int qd_pool_create(const struct qd_region *of, const struct qd_pool_ops *ops)
{
	struct rte_pktmbuf_pool_private private = {
		.mbuf_data_room_size = (uint16_t)(of->data_end - of->headroom + RTE_PKTMBUF_HEADROOM),
		.flags = RTE_PKTMBUF_POOL_F_PINNED_EXT_BUF,
	};
	size_t len = (size_t)of->capacity * QD_MBUF_STRIDE;
	struct rte_mempool *mp;
	void *mbufs;
	int result;

	if (qd_pool != NULL)
		return 0;
	region = *of;
	free_buffers = *ops;
	qd_base = of->base;
	qd_stride = of->stride;
	// Drivers put data RTE_PKTMBUF_HEADROOM bytes into what the mbuf calls its buffer: that is to be our headroom's end.
	qd_shift = of->headroom - RTE_PKTMBUF_HEADROOM;

	result = register_memory();
	if (result < 0)
		return result;
	result = rte_mempool_register_ops(&operations);
	if (result < 0)
		return result;
	mp = rte_mempool_create_empty("quiver", of->capacity, sizeof(struct rte_mbuf), 0, sizeof(private), SOCKET_ID_ANY,
				      RTE_MEMPOOL_F_NO_SPREAD);
	if (mp == NULL)
		return -rte_errno;
	result = rte_mempool_set_ops_byname(mp, "quiver", NULL);
	if (result < 0)
		return result;
	if (mp->header_size + mp->elt_size + mp->trailer_size != QD_MBUF_STRIDE)
		return -EPROTO;
	rte_pktmbuf_pool_init(mp, &private);
	mbufs = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mbufs == MAP_FAILED)
		return -errno;
	// One piece of memory, so that mbufs lie in it in order.
	result = rte_mempool_populate_iova(mp, mbufs, RTE_BAD_IOVA, len, NULL, NULL);
	if (result < 0)
		return result;
	if ((uint32_t)result != of->capacity)
		return -EPROTO;
	qd_first = (uint8_t *)mbufs + mp->header_size;
	rte_mempool_obj_iter(mp, init_mbuf, NULL);
	filled = 1;
	qd_pool = mp;
	return 0;
}

// Lets a port's device reach the region; devices without an IO map need nothing.
int qd_pool_map(uint16_t port)
{
	struct rte_eth_dev_info info;
	int result = rte_eth_dev_info_get(port, &info);

	if (result < 0 || info.device == NULL)
		return result;
	if (out_of_reach)
		return strcmp(rte_bus_name(rte_dev_bus(info.device)), "vdev") == 0 ? 0 : -EOPNOTSUPP;
	for (size_t at = 0; at < region.len; at += region.page) {
		uint8_t *page = region.base + at;
		size_t len = region.page;
		// Where addresses are virtual, all of it is one piece.
		if (pages == NULL)
			len = region.len;
		if (rte_dev_dma_map(info.device, page, iova_of(page), len) < 0)
			return rte_errno == ENOTSUP || rte_errno == EEXIST ? 0 : -rte_errno;
		if (pages == NULL)
			break;
	}
	return 0;
}

// A pool of DPDK's own, for drivers that insist on packets in memory that they know.
int qd_pool_create_copying(unsigned count)
{
	if (qd_copying_pool != NULL)
		return 0;
	qd_copying_pool = rte_pktmbuf_pool_create("quiver-copying", count, 256, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	return qd_copying_pool != NULL ? 0 : -rte_errno;
}
