"""The paper's update steps, written out literally in NumPy and SciPy: index matrices, Sylvester equation, full FFT."""

import numpy as np
from scipy.linalg import solve_sylvester

# The authors' code adds 1e-10. Its iterates differ from the exact ones in proportion to it: 1.7e-7 after 60 iterations.
REGULARISATION = 1e-12


def shrink_columns(v, tau):
    norms = np.linalg.norm(v, axis=0)
    return v * np.where(norms > tau, 1 - tau / np.where(norms > 0, norms, 1), 0)


def tensor_prox(stacked, tau):
    """Views (m, n, n) as the n x m x n tensor of the paper: the third axis is the row index of G^v."""
    tensor = np.transpose(stacked, (2, 0, 1))
    spectrum = np.fft.fft(tensor, axis=2)
    for i in range(tensor.shape[2]):
        u, s, vh = np.linalg.svd(spectrum[:, :, i], full_matrices=False)
        spectrum[:, :, i] = (u * np.maximum(s - tau, 0)) @ vh
    return np.transpose(np.fft.ifft(spectrum, axis=2).real, (1, 2, 0))


def run(views, mask, *, lam, theta, latent_dim, iterations, variant, updates, rho=1e-3, growth=1.3, rho_max=1e6):
    """The iterates: G, B, P, J2 as (view, row, column), E and J1 as lists of (k, n_v)."""
    n, m = mask.shape
    A = [np.eye(n)[mask[:, v]] for v in range(m)]
    X = [views[v][mask[:, v]].T for v in range(m)]
    X = [x / np.linalg.norm(x, axis=0) for x in X]
    projected, sparse = variant in ("full", "B"), variant in ("full", "N")
    W = [np.eye(latent_dim, x.shape[0]) if projected else np.eye(x.shape[0]) for x in X]
    E = [np.zeros((W[v].shape[0], X[v].shape[1])) for v in range(m)]
    J1 = [e.copy() for e in E]
    G, B, P, J2 = (np.zeros((m, n, n)) for _ in range(4))
    for _ in range(iterations):
        for v in range(m):
            F1 = X[v] - X[v] @ A[v] @ G[v] @ A[v].T
            F2 = E[v] - J1[v] / rho
            if projected and np.any(F1 @ F2.T):
                U, _, Vt = np.linalg.svd(F1 @ F2.T, full_matrices=False)
                W[v] = Vt.T @ U.T
            M = W[v] @ X[v]

            def new_error(M=M, v=v, rho=rho):
                return shrink_columns(M - M @ A[v] @ G[v] @ A[v].T + J1[v] / rho, 1 / rho)

            if updates == "reference":
                E[v] = new_error()
            F3 = M - E[v] + J1[v] / rho
            F4 = B[v] + P[v] - J2[v] / rho
            inverse = np.linalg.inv(A[v].T @ A[v] + REGULARISATION * np.eye(n))
            MA = M @ A[v]
            G[v] = solve_sylvester(MA.T @ MA, inverse, (MA.T @ F3 @ A[v] + F4) @ inverse)
            if updates == "paper":
                E[v] = new_error()
        B = tensor_prox(G - P + J2 / rho, lam / rho)
        if sparse:
            F8 = G - B + J2 / rho
            P = np.sign(F8) * np.maximum(np.abs(F8) - theta / rho, 0)
        for v in range(m):
            M = W[v] @ X[v]
            J1[v] = J1[v] + rho * (M - M @ A[v] @ G[v] @ A[v].T - E[v])
        J2 = J2 + rho * (G - B - P)
        rho = min(rho_max, growth * rho)
    H = np.mean([(np.abs(b) + np.abs(b).T) / 2 for b in B], axis=0)
    return {"G": G, "B": B, "P": P, "J2": J2, "E": E, "J1": J1, "H": H}
