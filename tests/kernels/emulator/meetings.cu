// Small kernels for test_emulator.py: each says what CUDA promises, so that a fault of the emulator
// shows here and not as a riddle elsewhere.

extern "C" __global__ void sum_block(const float* values, float* sums, int count) {
    __shared__ float parts[32];
    const int thread = threadIdx.x;
    float value = 0.0f;
    for (int i = blockIdx.x * blockDim.x + thread; i < count; i += gridDim.x * blockDim.x)
        value += values[i];
    for (int step = 16; step; step >>= 1) value += __shfl_xor_sync(~0u, value, step);
    if (thread % 32 == 0) parts[thread / 32] = value;
    __syncthreads();
    if (thread >= 32) return;  // later barriers go on without these
    value = thread < int(blockDim.x) / 32 ? parts[thread] : 0.0f;
    for (int step = 16; step; step >>= 1) value += __shfl_xor_sync(~0u, value, step);
    __syncthreads();
    if (thread == 0) sums[blockIdx.x] = value;
}

extern "C" __global__ void votes(unsigned* out) {
    const int lane = threadIdx.x % 32;
    const unsigned odd = __ballot_sync(~0u, lane & 1);
    unsigned low = 0;
    if (lane < 16)  // halves of a warp meet by themselves
        low = __reduce_add_sync(0xffffu, unsigned(lane));
    else
        low = __reduce_max_sync(0xffff0000u, unsigned(lane));
    const int up = __shfl_up_sync(~0u, lane, 1), down = __shfl_down_sync(~0u, lane, 1);
    const int broadcast = __shfl_sync(~0u, lane, 5), all = __syncthreads_and(lane < 32);
    const int any = __syncthreads_or(lane == 40), count = __syncthreads_count(lane == 3);
    unsigned* mine = out + 8 * threadIdx.x;
    mine[0] = odd, mine[1] = low, mine[2] = unsigned(up), mine[3] = unsigned(down);
    mine[4] = unsigned(broadcast), mine[5] = unsigned(all), mine[6] = unsigned(any);
    mine[7] = unsigned(count);
}

struct Arguments {
    unsigned* ticket;
    unsigned* last;
};

extern "C" __global__ void last_arriver(Arguments a) {
    __shared__ bool is_last;
    if (threadIdx.x == 0) is_last = atomicAdd(a.ticket, 1) == gridDim.x - 1;
    __syncthreads();
    if (is_last && threadIdx.x == 0) *a.last = *a.last + 1;
}

extern "C" __global__ void wait_for_neighbour(volatile unsigned* flag) {
    if (blockIdx.x == 1) *flag = 1;
    if (blockIdx.x == 0)
        while (*flag == 0) emulator::pause();
}

extern "C" __global__ void half_a_barrier() {
    if (threadIdx.x < 16) {
        __syncthreads();
    } else {
        __syncwarp(0xffff0000u);
        __shfl_sync(~0u, 1, 0);
    }
}

extern "C" __global__ void two_intrinsics() {
    if (threadIdx.x & 1)
        __ballot_sync(~0u, 1);
    else
        __shfl_sync(~0u, 1, 0);
}

extern "C" __global__ void reverse(int* values) {
    int* shared = static_cast<int*>(emulator::dynamic_shared());
    shared[threadIdx.x] = values[threadIdx.x];
    __syncthreads();
    values[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}
